// Mixtures of experts from the command line: training, its log, generation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/commands/bad_input.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const Words kTraining = words_of(
    "--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 64"
    " --micro-batch-size 1 --global-batch-size 4 --train-iters 3 --lr 1e-3 --mock-data --num-threads 1"
    " --tokenizer-type ByteLevelTokenizer --log-interval 1 --eval-iters 1 --eval-interval 2"
    " --num-experts 4 --moe-layer-freq [0,1] --moe-aux-loss-coeff 0.01 --moe-z-loss-coeff 1e-3");

TEST(ExpertsRun, LogsAuxiliaryLossesAndLoadsAndGeneratesFromItsCheckpoint) {
  const ScratchDirectory scratch;
  const std::string log = scratch.file("log.jsonl"), checkpoints = scratch.file("ckpt");
  const Outcome trained =
      run(Command::kPretrainGpt,
          joined(kTraining, {"--nproc-per-node", "4", "--pipeline-model-parallel-size", "2", "--moe-per-layer-logging",
                             "--log-jsonl", log, "--save", checkpoints, "--save-interval", "3"}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr(" | load_balancing_loss: "));
  EXPECT_THAT(trained.out, HasSubstr(" | z_loss: "));
  int num_lines = 0;
  std::ifstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json fields = nlohmann::json::parse(line);
    if (fields["event"] != "training") continue;
    ++num_lines;
    EXPECT_NEAR(fields["load_balancing_loss"], fields["moe/load_balancing_loss_layer_1"], 1e-12);
    EXPECT_GE(fields["moe/max_load_layer_1"], 1);
    EXPECT_LE(fields["moe/min_load_layer_1"], 1);
    EXPECT_FALSE(fields.contains("moe/max_load_layer_0")) << "it is dense";
  }
  EXPECT_EQ(num_lines, 3);
  const Outcome text = run(Command::kGenerate, {"--load", checkpoints, "--prompt", "the", "--num-tokens", "4",
                                                "--num-threads", "1", "--ignore-eod"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, StartsWith("the"));
}

TEST(ExpertsRun, TheLogSaysHowManyStepsWereComputedAgainForTokensWithoutRoom) {
  const auto log_of = [](const char* factor) {
    const Outcome trained = run(
        Command::kPretrainGpt,
        joined(kTraining, {"--nproc-per-node", "2", "--expert-model-parallel-size", "2", "--moe-token-dispatcher-type",
                           "alltoall", "--moe-expert-rank-capacity-factor", factor}));
    EXPECT_EQ(trained.status, 0) << trained.err;
    return trained.out;
  };
  EXPECT_THAT(log_of("0.5"), HasSubstr(" number of repeated iterations:   1 |"));
  EXPECT_THAT(log_of("2"), Not(HasSubstr("repeated iterations")));
}

}  // namespace
}  // namespace megatron::testing
