// GPU memory of processes, compared with the table before the first step: small models, whose libraries take more
// than the arena, and larger ones. Without a GPU the tests are skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>

#include "megatron/core/cuda_devices.h"
#include "tests/testing/program.h"

namespace megatron {
namespace {

using testing::joined;
using testing::Program;
using testing::words_of;

constexpr double kMostPercent = 2;
/// Memory that the arena takes ahead of need, at least 16 MiB, of which the plan has half; and kernel code, of which it
/// has 16.
constexpr double kMostMebibytes = 8 + 16;

struct Case {
  std::string name;
  int num_gpus;
  std::string flags;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class MemoryUse : public ::testing::TestWithParam<Case> {};

TEST_P(MemoryUse, OnTheGpuEqualsTheTable) {
  if (const size_t number = find_cuda_devices(std::nullopt).devices.size();
      number < static_cast<size_t>(GetParam().num_gpus))
    GTEST_SKIP() << number << " GPUs answer";
  Program training(
      joined(words_of(MEGATRON_PROGRAM
                      " pretrain_gpt --device cuda --bf16 --lr 1e-4 --mock-data --eval-iters 0 --train-iters 3"
                      " --tokenizer-type NullTokenizer --log-interval 1 --vocab-size 32000"
                      " --hidden-dropout 0 --attention-dropout 0"),
             words_of(GetParam().flags)));
  ASSERT_EQ(training.wait_status(), 0) << training.output();
  const std::string text = training.output();
  std::smatch found;
  ASSERT_TRUE(std::regex_search(
      text, found,
      std::regex(R"(in use: (\d+) MiB, ([0-9.]+) % (?:more|less) than planned(?:, ([0-9.]+) % at most)?)")))
      << text;
  const double used = std::stod(found[1]), apart = std::stod(found[3].matched ? found[3] : found[2]);
  RecordProperty("memory", found[0].str());
  EXPECT_LE(apart, std::max(kMostPercent, 100 * kMostMebibytes / used)) << found[0] << "\n" << text;
}

const std::string kSmall =
    "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 256 --max-position-embeddings 256"
    " --micro-batch-size 1 --global-batch-size 8 ";
const std::string kLarge =
    "--num-layers 6 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336 --swiglu --normalization "
    "RMSNorm"
    " --disable-bias-linear --position-embedding-type rope --untie-embeddings-and-output-weights --seq-length 4096"
    " --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 2 ";
const std::string kShards = " --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather";

INSTANTIATE_TEST_SUITE_P(
    Of, MemoryUse,
    ::testing::Values(Case{"small", 1, kSmall}, Case{"small_graph", 1, kSmall + "--cuda-graph-impl full_iteration"},
                      Case{"large", 1, kLarge}, Case{"small_replicas", 2, kSmall + "--nproc-per-node 2" + kShards},
                      Case{"small_tensor", 2,
                           kSmall + "--nproc-per-node 2 --tensor-model-parallel-size 2 --sequence-parallel"},
                      Case{"small_stages", 2, kSmall + "--nproc-per-node 2 --pipeline-model-parallel-size 2"},
                      Case{"large_replicas", 2, kLarge + "--nproc-per-node 2" + kShards},
                      Case{"large_stages", 2, kLarge + "--nproc-per-node 2 --pipeline-model-parallel-size 2"}),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace megatron
