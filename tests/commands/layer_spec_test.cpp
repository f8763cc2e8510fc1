// A program with layers of its own (examples/parallel_block.cpp) has every command and every layout for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/testing/program.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using testing::joined;
using testing::Program;
using testing::ScratchDirectory;
using testing::Words;
using testing::words_of;

struct Ended {
  int status = 0;  // of waitpid
  std::string output;
};
Ended run(const std::string& program, const std::string& flags, const Words& more = {}) {
  Program process(joined(joined({program}, words_of(flags)), more));
  const int status = process.wait_status();
  return {status, process.output()};
}

const std::string kTrain =
    "pretrain_gpt --device cpu --num-layers 4 --hidden-size 24 --num-attention-heads 4 --seq-length 16"
    " --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 6 --train-iters 5 --lr 1e-3 --mock-data"
    " --tokenizer-type NullTokenizer --vocab-size 96 --make-vocab-size-divisible-by 1 --num-threads 1 --log-interval 1 "
    "--eval-iters 0 --fp64 ";

/// The losses of every step.
std::vector<double> losses_of(const std::string& program, const std::string& flags) {
  const ScratchDirectory scratch;
  const Ended ended = run(program, kTrain + flags, {"--log-jsonl", scratch.file("log")});
  EXPECT_EQ(ended.status, 0) << ended.output;
  std::vector<double> losses;
  std::ifstream file(scratch.file("log"));
  for (std::string line; std::getline(file, line);)
    if (const auto record = nlohmann::json::parse(line); record.contains("lm_loss"))
      losses.push_back(record["lm_loss"]);
  EXPECT_EQ(losses.size(), 5);
  return losses;
}

TEST(LayerSpec, TrainsOnEveryLayoutLikeOneRank) {
  const std::vector<double> one_rank = losses_of(PARALLEL_BLOCK, "");
  for (const char* layout :
       {"--nproc-per-node 6 --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 3"
        " --pipeline-model-parallel-layout Et|tt|tL",
        "--nproc-per-node 3 --use-distributed-optimizer --recompute-granularity full --recompute-method uniform"
        " --recompute-num-layers 1"}) {
    const std::vector<double> losses = losses_of(PARALLEL_BLOCK, layout);
    ASSERT_EQ(losses.size(), one_rank.size());
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], one_rank[i], 1e-11) << layout;
  }
  EXPECT_NE(losses_of(MEGATRON_PROGRAM, ""), one_rank);
}

// 96 + 16 rows of embeddings and a final norm; in each of 4 layers one norm, attention with biases, and a feed-forward
// whose first matrix has a gate and as many rows again.
TEST(LayerSpec, OfAProgramHasAGatedFeedForwardWhateverTheFlagsSay) {
  constexpr int64_t kH = 24, kF = 96, kAttention = 4 * kH * kH + 4 * kH,
                    kFeedForward = 2 * kF * (kH + 1) + kH * (kF + 1);
  constexpr int64_t kParameters = (96 + 16) * kH + 2 * kH + 4 * (2 * kH + kAttention + kFeedForward);
  const Ended ended = run(PARALLEL_BLOCK, kTrain);
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output,
              HasSubstr("number of parameters of the whole model: " + std::to_string(kParameters) + "\n"));
}

TEST(LayerSpec, MatchesItsCheckpoints) {
  const ScratchDirectory scratch;
  ASSERT_EQ(run(PARALLEL_BLOCK, kTrain, {"--save", scratch.path(), "--save-interval", "5"}).status, 0);
  const std::string generate = "generate --prompt 7 --greedy --num-tokens 4 --num-threads 1 --device cpu --load ";
  const Ended own = run(PARALLEL_BLOCK, generate + scratch.path());
  EXPECT_EQ(own.status, 0) << own.output;
  const Ended other = run(MEGATRON_PROGRAM, generate + scratch.path());
  EXPECT_NE(other.status, 0);
  EXPECT_THAT(other.output, HasSubstr("has no tensor decoder.layers.mlp.linear_fc1.layer_norm_weight"));
}

TEST(LayerSpec, IsVerified) {
  const Ended ended = run(PARALLEL_BLOCK, "verify layouts --num-steps 2 --layout tp=2 --layout pp=2");
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("all 2 layouts train like one rank"));
}

}  // namespace
}  // namespace megatron
