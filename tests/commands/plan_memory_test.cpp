#include "commands/plan_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "commands/exit_code.h"
#include "commands/plan.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct MemoryOutcome {
  int status;
  std::string out, err;
};

MemoryOutcome plan_memory(const std::string& words) {
  std::ostringstream out, err;
  std::istringstream text("--memory " + words);
  const int status = plan_command({std::istream_iterator<std::string>(text), {}}, out, err);
  return {status, out.str(), err.str()};
}

/// The number behind a line's name.
double mebibytes(const MemoryOutcome& outcome, const std::string& line) {
  const size_t at = outcome.out.find(line);
  EXPECT_NE(at, std::string::npos) << line << " is not in\n" << outcome.out << outcome.err;
  return at == std::string::npos ? 0 : std::stod(outcome.out.substr(at + line.size()));
}

const std::string kEightBillion =
    " --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
    "--num-query-groups 8 --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
    "--untie-embeddings-and-output-weights --vocab-size 128255 --micro-batch-size 1 --bf16 --use-distributed-optimizer "
    "--attention-dropout 0 --hidden-dropout 0";
const std::string kFull = " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1";

TEST(PlanMemory, CountsTheStatesOfEveryParameter) {
  constexpr double kParameters = 8.0302e9, kMebibyte = 1 << 20;
  const MemoryOutcome o =
      plan_memory("--gpu-memory 100 --nproc-per-node 8 --seq-length 4096 --global-batch-size 8" + kEightBillion);
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_NEAR(mebibytes(o, "\ngradients"), kParameters * 4 / kMebibyte, 40);
  EXPECT_NEAR(mebibytes(o, "\noptimizer"), kParameters * 12 / 8 / kMebibyte, 40) << "split over eight ranks";
  EXPECT_THAT(o.out, HasSubstr("It fits in 100 GiB.\n"));
}

/// Memory that the optimizer leaves free to many ranks stays free.
TEST(PlanMemory, OfManyRanksHasNoGapsOfTheSizeOfWeights) {
  const MemoryOutcome o = plan_memory("--nproc-per-node 64 --seq-length 4096 --global-batch-size 64" + kEightBillion);
  EXPECT_LT(mebibytes(o, "\narena, with gaps between blocks"),
            mebibytes(o, "\nall of these at a time, at most") * 1.01);
}

TEST(PlanMemory, NamesFlagsThatMakeARunFit) {
  const std::string words =
      "--gpu-memory 60 --nproc-per-node 8 --seq-length 8192 --global-batch-size 8" + kEightBillion;
  const std::string flags = " --tensor-model-parallel-size 2 --sequence-parallel";
  const MemoryOutcome o = plan_memory(words);
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("It does not fit in 60 GiB.\n"), HasSubstr("MiB with" + flags)));
  EXPECT_THAT(plan_memory(words + flags).out, HasSubstr("It fits in 60 GiB.\n"));
}

/// 128k tokens on eight ranks: a rank keeps 16k tokens of each layer, or with recompute the input of each layer and one
/// layer's values.
TEST(PlanMemory, OfLongSamplesFollowsTokensAndRecompute) {
  const auto activations = [](const std::string& more) {
    return mebibytes(
        plan_memory("--nproc-per-node 8 --context-parallel-size 8 --global-batch-size 1 " + more + kEightBillion),
        "\nactivations");
  };
  const double of_16k = activations("--seq-length 16384"), of_128k = activations("--seq-length 131072");
  constexpr double kTokens = 16384, kHidden = 4096, kLayers = 32, kMebibyte = 1 << 20;
  EXPECT_NEAR(of_128k / of_16k, 8, 0.4) << "beside what does not grow with tokens";
  EXPECT_GT(of_128k, 17 * kTokens * kHidden * 2 * kLayers / kMebibyte * 0.9);
  const double recomputed = activations("--seq-length 131072" + kFull);
  EXPECT_LT(recomputed, of_128k / 4);
  EXPECT_GT(recomputed, kTokens * kHidden * 2 * kLayers / kMebibyte);
}

TEST(PlanMemory, BoundsTheRoomOfExpertsWhereGpusAreSmall) {
  const std::string words =
      "--nproc-per-node 8 --expert-model-parallel-size 8 --num-experts 8 --moe-router-topk 2 --num-layers 8 "
      "--hidden-size 2048 "
      "--num-attention-heads 16 --ffn-hidden-size 5632 --swiglu --disable-bias-linear --seq-length 4096 "
      "--micro-batch-size 4 --global-batch-size 32 --bf16 --attention-dropout 0 --hidden-dropout 0 --vocab-size 31999";
  EXPECT_THAT(plan_memory("--gpu-memory 500 " + words).out, Not(HasSubstr("experts: a rank has room")));
  EXPECT_THAT(plan_memory("--gpu-memory 45 " + words).out,
              AllOf(HasSubstr("experts: a rank has room for"), HasSubstr("It fits in 45 GiB.")));
}

TEST(PlanMemory, RunsTheCommandOfItsPage) {
  std::ifstream page(testing::source_path("docs/planning.md"));
  std::string text{std::istreambuf_iterator<char>(page), {}};
  const std::string start = "build/bin/megatron plan --memory";
  const size_t begin = text.find(start) + start.size();
  text = text.substr(begin, text.find("```", begin) - begin);
  std::erase(text, '\\');
  const MemoryOutcome o = plan_memory(text);
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("It fits in 80 GiB."));
  const std::string smaller = "--gpu-memory 40";
  EXPECT_THAT(plan_memory(text + " " + smaller).out,
              HasSubstr("MiB with --tensor-model-parallel-size 4 --sequence-parallel"));
}

TEST(PlanMemory, ReportsAllMistakesAndHelps) {
  const MemoryOutcome bad = plan_memory("--gpu-memory -1 --num-layers 3 --hidden-size 7 --num-attention-heads 2");
  EXPECT_EQ(bad.status, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(bad.err, AllOf(HasSubstr("--gpu-memory"), HasSubstr("--hidden-size")));
  EXPECT_THAT(plan_memory("--help").out, HasSubstr("usage: megatron plan --memory"));
  EXPECT_THAT(plan_memory("--help=--gpu-memory").out, HasSubstr("memory of each GPU"));
}

}  // namespace
}  // namespace megatron
