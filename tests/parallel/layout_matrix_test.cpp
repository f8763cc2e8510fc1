// Every layout of ranks trains as one rank does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <numeric>
#include <random>

#include "tests/parallel/layout_matrix.h"
#include "tests/parallel/layout_run.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr int kSteps = 10;

void expect_pairwise(bool is_llama) {
  std::vector<LayoutCase> layouts = pairwise_layouts();
  std::erase_if(layouts, [&](const LayoutCase& layout) { return layout.sizes.is_llama != is_llama; });
  expect_one_rank_curves(layouts, kSteps);
}

TEST(LayoutMatrix, EveryPairOfSettingsTrainsGpt2AsOneRankDoes) { expect_pairwise(false); }
TEST(LayoutMatrix, EveryPairOfSettingsTrainsLlamaAsOneRankDoes) { expect_pairwise(true); }

/// Awkward sizes, each with the layout that they are awkward for.
TEST(LayoutMatrix, AwkwardSizesTrainAsOneRankDoes) {
  const std::string common = "--fp64 --lr 1e-3 --micro-batch-size 1 --global-batch-size 4 ";
  const auto heads = [&](int num_heads, int num_groups, int hidden, int ffn) {
    return llama_like(common + fmt::format("--num-layers 2 --num-attention-heads {} --num-query-groups {} "
                                           "--hidden-size {} --ffn-hidden-size {} --qk-layernorm ",
                                           num_heads, num_groups, hidden, ffn));
  };
  struct Case {
    std::string model, layout;
    int num_ranks, num_steps;
  };
  const std::vector<Case> cases = {
      {heads(5, 5, 40, 35), "--tensor-model-parallel-size 5", 5, kSteps},
      {heads(5, 5, 40, 35), "--tensor-model-parallel-size 1", 2, kSteps},
      {heads(12, 6, 24, 22), "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", 4, kSteps},
      {heads(8, 2, 32, 36), "--tensor-model-parallel-size 4 --sequence-parallel", 8, kSteps},
      {heads(4, 1, 24, 36), "--tensor-model-parallel-size 4 --use-distributed-optimizer", 8, kSteps},
      {gpt2_like(common + "--num-layers 43 --hidden-size 16 --num-attention-heads 2 "),
       "--pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split", 4, 3},
      {gpt2_like(common + "--num-layers 1 --hidden-size 16 --num-attention-heads 2 --vocab-size 50257 "),
       "--tensor-model-parallel-size 2", 4, 3}};
  for (const auto& [model, layout, num_ranks, num_steps] : cases)
    expect_same_curve(train_layout(model + layout, num_ranks, num_steps), train_layout(model, 1, num_steps),
                      model + layout);
}

/// What only changes when or where the same sums are formed: losses and norms of three steps, bit for bit.
void expect_same_bits(const std::string& layout, int num_ranks, const std::vector<std::string>& others) {
  const std::string model = llama_like("--lr 1e-3 --num-layers 8 --global-batch-size 12 --micro-batch-size 1 ");
  for (const std::string precision : {"--fp64 ", "", "--bf16 "}) {
    const Curve plain = train_layout(model + precision + layout, num_ranks, 3);
    for (const std::string& other : others)
      EXPECT_EQ(train_layout(model + precision + layout + other, num_ranks, 3), plain) << precision << layout << other;
  }
}

const std::string kTwoStages = "--pipeline-model-parallel-size 2 ";

TEST(LayoutMatrix, VirtualStagesChangeNoBitOf1F1B) {
  expect_same_bits(kTwoStages, 2,
                   {"--num-virtual-stages-per-pipeline-rank 2", "--num-virtual-stages-per-pipeline-rank 4",
                    "--num-virtual-stages-per-pipeline-rank 2 --microbatch-group-size-per-virtual-pipeline-stage 4"});
}

TEST(LayoutMatrix, SplitWeightGradientsChangeNoBitOf1F1B) {
  expect_same_bits(kTwoStages, 2, {"--pipeline-schedule zb-h1", "--pipeline-schedule zb-v"});
}

TEST(LayoutMatrix, GPipeChangesNoBitOf1F1B) { expect_same_bits(kTwoStages, 2, {"--pipeline-schedule gpipe"}); }

TEST(LayoutMatrix, RecomputeChangesNoBit) {
  const std::vector<std::string> ways = {
      "--recompute-granularity full --recompute-method uniform --recompute-num-layers 3",
      "--recompute-granularity full --recompute-method block --recompute-num-layers 3",
      "--recompute-granularity selective --recompute-modules core_attn layernorm mlp"};
  expect_same_bits(kTwoStages, 2, ways);
  expect_same_bits("--tensor-model-parallel-size 2 ", 2, ways);
}

TEST(LayoutMatrix, BucketSizeChangesNoBit) {
  for (const std::string shards : {"", "--use-distributed-optimizer "})
    expect_same_bits("--overlap-grad-reduce " + shards, 3,
                     {"--ddp-bucket-size 1000", "--ddp-bucket-size 7777", "--ddp-num-buckets 5"});
}

TEST(LayoutMatrix, OverlapChangesNoBit) {
  expect_same_bits("", 3, {"--overlap-grad-reduce"});
  expect_same_bits("--use-distributed-optimizer ", 3,
                   {"--overlap-grad-reduce", "--overlap-grad-reduce --overlap-param-gather"});
}

TEST(LayoutMatrix, TheDistributedOptimizerChangesNoBit) { expect_same_bits("", 3, {"--use-distributed-optimizer"}); }

/// One rank that takes the samples of each global batch in another order: what it adds up is the same.
Curve train_in_order(const std::string& words, uint64_t seed) {
  Trainer trainer(small_config(words), {});
  Curve curve;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<int64_t> order(static_cast<size_t>(trainer.config().training.global_batch_size.value()));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(1000 * seed + static_cast<uint64_t>(step)));
    const TrainStepResult result = trainer.train_step(batches_of(trainer.config(), step, 0, order));
    curve.losses.push_back(result.loss.mean());
    curve.grad_norms.push_back(result.optimizer.grad_norm);
  }
  return curve;
}

/// Dropout would drop other elements: it goes by the place in the global batch.
const std::string kNoDropout =
    "--lr 1e-3 --num-layers 4 --global-batch-size 24 --hidden-dropout 0 --attention-dropout 0 ";
const std::vector<std::string> kFourLayers = {gpt2_like(kNoDropout), llama_like(kNoDropout)};

TEST(LayoutMatrix, TheOrderOfSamplesChangesNothingButRounding) {
  for (const std::string& model : kFourLayers) {
    const Curve numbered = train_layout(model + "--fp64", 1, kSteps);
    for (const uint64_t seed : {1, 2}) expect_same_curve(train_in_order(model + "--fp64", seed), numbered, model);
  }
}

/// In fp32 the loss after ten steps departs by at most twice what eight orders of summation on one rank make.
TEST(LayoutMatrix, InSinglePrecisionLayoutsDepartNoMoreThanOrdersOfSummationDo) {
  for (const std::string& model : kFourLayers) {
    double least = std::numeric_limits<double>::infinity(), most = -least;
    const double first = train_layout(model, 1, 1).losses[0];
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const double loss = train_in_order(model, seed).losses.back();
      least = std::min(least, loss);
      most = std::max(most, loss);
    }
    const double spread = most - least;
    EXPECT_GT(spread, 0);
    std::cout << fmt::format("eight orders of summation: losses from {:.9f} on, spread {:.1e}\n", least, spread);
    for (const auto& [layout, num_ranks] : std::vector<std::pair<std::string, int>>{
             {"--tensor-model-parallel-size 2 --sequence-parallel", 2},
             {"--tensor-model-parallel-size 4", 4},
             {"--pipeline-model-parallel-size 4", 4},
             {"--use-distributed-optimizer", 3},
             {"--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer", 8}}) {
      const Curve curve = train_layout(model + layout, num_ranks, kSteps);
      const double departure = std::abs(curve.losses.back() - (least + most) / 2);
      std::cout << fmt::format("{}: departs by {:.1e} from their middle\n", layout, departure);
      EXPECT_NEAR(curve.losses[0], first, 1e-6) << layout;
      EXPECT_LE(departure, 2 * spread) << layout;
    }
  }
}

}  // namespace
}  // namespace megatron::testing
