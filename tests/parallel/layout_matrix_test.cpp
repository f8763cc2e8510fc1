// Every layout of ranks trains as one rank does.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <map>

#include "tests/parallel/layout_matrix.h"
#include "tests/parallel/layout_run.h"
#include "tests/parallel/summation_orders.h"
#include "tests/testing/tolerance.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr int kSteps = 10;

std::vector<LayoutCase> pairwise_layouts_of(bool is_llama) {
  std::vector<LayoutCase> layouts = pairwise_layouts();
  std::erase_if(layouts, [&](const LayoutCase& layout) { return layout.sizes.is_llama != is_llama; });
  return layouts;
}

TEST(LayoutMatrix, EveryPairOfSettingsTrainsGpt2AsOneRankDoes) {
  expect_one_rank_curves(pairwise_layouts_of(false), kSteps);
}
TEST(LayoutMatrix, EveryPairOfSettingsTrainsLlamaAsOneRankDoes) {
  expect_one_rank_curves(pairwise_layouts_of(true), kSteps);
}

TEST(LayoutMatrix, EveryPairOfSettingsOfContextParallelismTrainsAsOneRankDoes) {
  expect_one_rank_curves(pairwise_context_layouts(), kSteps);
}

TEST(LayoutMatrix, MultiLatentAttentionOverContextRanksTrainsAsOneRankDoes) {
  const std::string model = gpt2_like(
      "--fp64 --lr 1e-3 --micro-batch-size 1 --global-batch-size 4 --num-layers 2 --position-embedding-type rope "
      "--rope-type rope --multi-latent-attention --kv-lora-rank 10 --q-lora-rank 14 --qk-head-dim 6 "
      "--qk-pos-emb-head-dim 4 --v-head-dim 5 ");
  const Curve expected = train_layout(model, 1, kSteps);
  for (const std::string layout :
       {"", "--cp-comm-type all_gather p2p --tensor-model-parallel-size 2 --sequence-parallel",
        "--cp-comm-type a2a --tensor-model-parallel-size 2"}) {
    const std::string words = model + "--context-parallel-size 2 " + layout;
    expect_same_curve(train_layout(words, 4, kSteps), expected, words);
  }
}

/// Three steps of a sample of documents.
Curve train_documents(const std::string& words, int num_ranks, const std::vector<int32_t>& cuts = {5, 12}) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < 17; ++i) tokens.push_back(i * i % 61);
  Curve curve;
  run_layout(words, num_ranks, [&](Trainer& trainer) {
    for (int step = 0; step < 3; ++step) {
      const std::vector<MicroBatch<int64_t>> batch{sample_of(tokens, cuts)};
      const TrainStepResult result = trainer.train_step(batch);
      if (trainer.groups().world.rank() != 0) continue;
      curve.losses.push_back(result.loss.mean());
      curve.grad_norms.push_back(result.optimizer.grad_norm);
    }
  });
  return curve;
}

TEST(LayoutMatrix, DocumentsOverContextRanksTrainAsOnOneRank) {
  const std::string model = llama_like(
      "--fp64 --lr 1e-3 --micro-batch-size 1 --global-batch-size 1 --reset-attention-mask --reset-position-ids ");
  const Curve expected = train_documents(model, 1);
  EXPECT_GT(departure(train_documents(model, 1, {}), expected).loss, 1e-6) << "the documents make a difference";
  for (const std::string layout : {"", "--cp-comm-type all_gather", "--cp-comm-type a2a p2p all_gather"})
    expect_same_curve(train_documents(model + "--context-parallel-size 2 " + layout, 2), expected, layout);
}

/// Awkward sizes, each with the layout that they are awkward for.
TEST(LayoutMatrix, AwkwardSizesTrainAsOneRankDoes) {
  const std::string common = "--fp64 --lr 1e-3 --micro-batch-size 1 --global-batch-size 4 ";
  const auto heads = [&](int num_heads, int num_groups, int hidden, int ffn) {
    return llama_like(common + fmt::format("--num-layers 2 --num-attention-heads {} --num-query-groups {} "
                                           "--hidden-size {} --ffn-hidden-size {} --qk-layernorm ",
                                           num_heads, num_groups, hidden, ffn));
  };
  const auto latent = [&](const std::string& queries) {
    return gpt2_like(
        common +
        "--num-layers 2 --num-attention-heads 6 --hidden-size 36 --ffn-hidden-size 30 --swiglu "
        "--position-embedding-type none --normalization RMSNorm --disable-bias-linear "
        "--multi-latent-attention --kv-lora-rank 13 --qk-head-dim 5 --qk-pos-emb-head-dim 6 --v-head-dim 7 "
        "--rotary-scaling-factor 4 --mscale-all-dim 0.8 --qk-layernorm " +
        queries);
  };
  const auto further = [&](const std::string& weights) {
    return gpt2_like(common +
                     "--num-layers 4 --hidden-size 24 --num-attention-heads 4 --position-embedding-type rope "
                     "--mtp-num-layers 2 --mtp-loss-scaling-factor 0.5 " +
                     weights);
  };
  const std::string experts =
      "--num-experts 4 --moe-layer-freq [0,1,1,1] --moe-router-topk 2 --moe-router-score-function sigmoid "
      "--moe-router-enable-expert-bias --moe-router-bias-update-rate 0.1 --moe-router-load-balancing-type seq_aux_loss "
      "--moe-aux-loss-coeff 0.1 ";
  const std::string untied = "--untie-embeddings-and-output-weights ";
  struct Case {
    std::string model, layout;
    int num_ranks, num_steps;
  };
  const std::vector<Case> cases = {
      {heads(5, 5, 40, 35), "--tensor-model-parallel-size 5", 5, kSteps},
      {heads(5, 5, 40, 35), "--tensor-model-parallel-size 1", 2, kSteps},
      {heads(12, 6, 24, 22), "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", 4, kSteps},
      {heads(8, 2, 32, 36), "--tensor-model-parallel-size 4 --sequence-parallel", 8, kSteps},
      {latent("--q-lora-rank 11 "),
       "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2", 4, kSteps},
      {further(""), "--pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel", 4, kSteps},
      {further(untied), "--pipeline-model-parallel-size 2 --use-distributed-optimizer", 4, kSteps},
      {further(""), "--context-parallel-size 2", 2, kSteps},
      {further(untied), "--context-parallel-size 2 --pipeline-model-parallel-size 2 --cp-comm-type all_gather", 4,
       kSteps},
      {further(experts),
       "--context-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1 "
       "--expert-model-parallel-size 2",
       4, kSteps},
      {further(""), "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Ett|t|tmm|L", 4, kSteps},
      {further(untied), "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Ett|tt|mm|L", 4, kSteps},
      {further(""), "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v", 2, kSteps},
      {further(untied), "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v", 2, kSteps},
      {further(""), "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2", 2, kSteps},
      {further(experts),
       "--pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel "
       "--expert-tensor-parallel-size 1 --expert-model-parallel-size 2",
       4, kSteps},
      {latent(""), "--tensor-model-parallel-size 3 --use-distributed-optimizer", 6, kSteps},
      {latent(""), "--pipeline-model-parallel-size 2 --recompute-activations --recompute-modules core_attn layernorm",
       2, kSteps},
      {heads(8, 2, 32, 36) + "--attention-output-gate ",
       "--tensor-model-parallel-size 2 --sequence-parallel --context-parallel-size 2 --recompute-activations", 4,
       kSteps},
      {heads(8, 2, 32, 36) + "--qk-clip --qk-clip-threshold 0.5 ", "--tensor-model-parallel-size 4 --sequence-parallel",
       8, kSteps},
      {latent("--q-lora-rank 11 --qk-clip --qk-clip-threshold 0.001 "),
       "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer", 8, kSteps},
      {heads(8, 2, 32, 36) + "--qk-clip --qk-clip-threshold 0.5 ", "--context-parallel-size 2", 2, kSteps},
      {heads(4, 1, 24, 36), "--tensor-model-parallel-size 4 --use-distributed-optimizer", 8, kSteps},
      {gpt2_like(common + "--num-layers 43 --hidden-size 16 --num-attention-heads 2 "),
       "--pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split", 4, 3},
      {gpt2_like(common + "--num-layers 1 --hidden-size 16 --num-attention-heads 2 --vocab-size 50257 "),
       "--tensor-model-parallel-size 2", 4, 3}};
  for (const auto& [model, layout, num_ranks, num_steps] : cases)
    expect_same_curve(train_layout(model + layout, num_ranks, num_steps), train_layout(model, 1, num_steps),
                      model + layout);
}

std::string model_of_eight_layers(const std::string& extra) {
  return llama_like("--lr 1e-3 --num-layers 8 --global-batch-size 12 --micro-batch-size 1 " + extra);
}

/// Expects the same bits of the losses and norms of three steps if only when or where sums are formed changes.
void expect_same_bits(const std::string& precision, const std::string& layout, int num_ranks,
                      const std::vector<std::string>& others) {
  const std::string words = model_of_eight_layers(precision) + layout;
  const Curve plain = train_layout(words, num_ranks, 3);
  for (const std::string& other : others)
    EXPECT_EQ(train_layout(words + other, num_ranks, 3), plain) << precision << layout << other;
}
void expect_same_bits(const std::string& layout, int num_ranks, const std::vector<std::string>& others) {
  for (const std::string precision : {"--fp64 ", "", "--bf16 "}) expect_same_bits(precision, layout, num_ranks, others);
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

/// A layout, and ways to overlap its tensor parallelism.
struct TensorOverlap {
  std::string layout;
  int num_ranks;
  std::vector<std::string> ways;
};

/// Also with W split from B, and with rows that are multiplied twice.
std::vector<TensorOverlap> tensor_overlaps() {
  const std::string sequence = "--tensor-model-parallel-size 2 --sequence-parallel ";
  const std::string parts =
      "--tp-comm-overlap --tp-comm-overlap-rs-dgrad --tp-comm-overlap-ag-splits 3 --tp-comm-overlap-rs-splits 3";
  const std::string delays = " --tp-comm-overlap-delay-wgrad", recompute = "--recompute-granularity ";
  return {{sequence,
           2,
           {"--tp-comm-overlap", "--tp-comm-overlap --tp-comm-overlap-rs-splits 1", parts,
            "--tp-comm-overlap --no-tp-comm-overlap-ag", "--tp-comm-overlap --no-tp-comm-overlap-rs", parts + delays,
            "--tp-comm-overlap --no-tp-comm-overlap-ag" + delays}},
          {sequence + kTwoStages + "--overlap-grad-reduce --ddp-bucket-size 1000 ", 8, {parts + delays}},
          {sequence + recompute + "selective --recompute-modules core_attn layernorm mlp ", 2, {parts + delays}},
          {sequence + kTwoStages + "--pipeline-schedule zb-h1 ", 4, {parts}},
          {sequence + recompute + "full --recompute-method uniform --recompute-num-layers 3 ", 2, {parts}}};
}

/// Matmuls of fp64 are by the built-in tiles, which give a row the same bits whatever rows are beside it.
TEST(LayoutMatrix, TensorParallelOverlapChangesNoBitOfFp64) {
  for (const auto& [layout, num_ranks, ways] : tensor_overlaps()) expect_same_bits("--fp64 ", layout, num_ranks, ways);
}

TEST(LayoutMatrix, TheDistributedOptimizerChangesNoBit) { expect_same_bits("", 3, {"--use-distributed-optimizer"}); }

constexpr const char* kNoDropout = "--hidden-dropout 0 --attention-dropout 0 ";

TEST(LayoutMatrix, AnotherOrderOfSummationChangesNothingButRounding) {
  const std::string size = "--lr 1e-3 --num-layers 4 --global-batch-size 24 ";
  for (const std::string& model : {gpt2_like(size + kNoDropout), llama_like(size + kNoDropout)}) {
    const std::string words = model + " --fp64";
    const Curve usual = train_layout(words, 1, kSteps);
    for (const uint64_t seed : {1, 2}) {
      const Curve other = train_in_order(words, seed, kSteps);
      EXPECT_NE(other, usual);
      expect_same_curve(other, usual, words);
    }
  }
}

/// Bounds rounding in `dtype`: a loss is the mean of a step's tokens, whose errors are their own.
double first_loss_limit(DType dtype, int64_t num_samples, const std::string& model, double loss) {
  const auto num_tokens = static_cast<double>(num_samples * small_config(model).model.seq_length.value());
  return tolerance(dtype, 1, loss) / std::sqrt(num_tokens);
}

/// The last loss departs by at most twice what eight orders of summation on one rank make.
void expect_no_more_than_orders(const Curve& curve, const OrdersOfSummation& orders, double first_limit,
                                const std::string& words) {
  const double departure = std::abs(curve.losses.back() - orders.middle());
  std::cout << fmt::format("  {:.2f} of it: {}\n", departure / orders.spread(), words);
  EXPECT_GT(orders.spread(), 0);
  EXPECT_NEAR(curve.losses[0], orders.first, first_limit) << words;
  EXPECT_LE(departure, 2 * orders.spread()) << words;
}

OrdersOfSummation printed_orders(const std::string& model, int num_steps) {
  const OrdersOfSummation orders = eight_orders(model, num_steps);
  std::cout << fmt::format("eight orders of summation: losses from {:.9f} on, spread {:.1e}\n", orders.least,
                           orders.spread());
  return orders;
}

/// Matmul libraries may add up the same row in another order if there are fewer rows: oneDNN does on some instruction
/// sets and not on others.
TEST(LayoutMatrix, TensorParallelOverlapDepartsNoMoreThanOrdersOfSummationDo) {
  for (const auto& [precision, dtype] : {std::pair{"", DType::kFloat32}, {"--bf16 ", DType::kBFloat16}}) {
    const std::string model = model_of_eight_layers(kNoDropout + std::string(precision));
    const OrdersOfSummation orders = printed_orders(model, 3);
    for (const auto& [layout, num_ranks, ways] : tensor_overlaps())
      for (const std::string& way : ways)
        expect_no_more_than_orders(train_layout(model + layout + way, num_ranks, 3), orders,
                                   first_loss_limit(dtype, 12, model, orders.first), precision + layout + way);
  }
}

void expect_no_more_than_orders(const std::vector<LayoutCase>& layouts) {
  std::map<std::string, OrdersOfSummation> of_one_rank;
  for (LayoutCase layout : layouts) {
    layout.precision = "";
    layout.sizes.words += kNoDropout;
    const std::string model = layout.model(), words = layout.layout();
    const auto [place, is_new] = of_one_rank.try_emplace(model);
    OrdersOfSummation& orders = place->second;
    if (is_new) orders = printed_orders(model, kSteps);
    expect_no_more_than_orders(train_layout(model + words, layout.num_ranks(), kSteps), orders,
                               first_loss_limit(DType::kFloat32, layout.global_batch(), model, orders.first), words);
  }
}

TEST(LayoutMatrix, InSinglePrecisionGpt2DepartsNoMoreThanOrdersOfSummationDo) {
  expect_no_more_than_orders(pairwise_layouts_of(false));
}
TEST(LayoutMatrix, InSinglePrecisionLlamaDepartsNoMoreThanOrdersOfSummationDo) {
  expect_no_more_than_orders(pairwise_layouts_of(true));
}

/// Another order of the samples would be another dropout, so that ten steps have no spread to compare with.
TEST(LayoutMatrix, InSinglePrecisionWithDropoutTheFirstLossIsThatOfOneRank) {
  OneRankCurves one_rank(1);
  for (const bool is_llama : {false, true})
    for (LayoutCase layout : pairwise_layouts_of(is_llama)) {
      layout.precision = "";
      const std::string model = layout.model(), words = layout.layout();
      const Curve curve = train_layout(model + words, layout.num_ranks(), 1);
      const double loss = one_rank.of(model).losses[0];
      EXPECT_NEAR(curve.losses[0], loss, first_loss_limit(DType::kFloat32, layout.global_batch(), model, loss))
          << words;
    }
}

}  // namespace
}  // namespace megatron::testing
