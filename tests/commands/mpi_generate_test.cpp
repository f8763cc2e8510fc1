// Generation and evaluation under mpirun give the output of ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/testing/mpirun.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"
#include "tests/testing/words.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using testing::joined;
using testing::Words;

TEST(MpiGenerate, ProcessesGenerateAndEvaluateWhatThreadsDo) {
  const testing::ScratchDirectory scratch;
  std::ofstream(scratch.file("text.txt")) << "3 17 8 28 5 1 2 3 4 5 6 7";
  const Words model = {"--load-hf", testing::source_path("tests/golden/hf/llama"), "--device", "cpu", "--num-threads",
                       "1"};
  const Words stages = {"--pipeline-model-parallel-size", "2"};
  for (const Words& command : {Words{MEGATRON_PROGRAM, "generate", "--prompt", "1 2 3", "--num-tokens", "6", "--greedy",
                                     "--ignore-eod", "--json"},
                               Words{MEGATRON_PROGRAM, "eval", "--text", scratch.file("text.txt")}}) {
    const Words words = joined(joined(command, model), stages);
    std::string command_line;
    for (const std::string& word : words) command_line += " '" + word + "'";
    const testing::MpiOutcome threads = testing::run_shell(command_line);
    EXPECT_EQ(threads.status, 0) << threads.output;
    const auto mpi = testing::run_under_mpi(2, words);
    if (!mpi) GTEST_SKIP() << "Open MPI's mpirun is not installed";
    EXPECT_EQ(mpi->status, 0) << mpi->output;
    EXPECT_EQ(mpi->output, threads.output) << "rank 0 alone prints";
    const auto too_many = testing::run_under_mpi(3, words);
    EXPECT_THAT(too_many->output, HasSubstr("share the model among 2 ranks, but the launcher has started 3"));
  }
}

}  // namespace
}  // namespace megatron
