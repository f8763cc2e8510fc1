// A trainer on the meta device is the plan of the same trainer on a real one: memory and operations.
#include <gtest/gtest.h>

#include "megatron/training/planning/theoretical_flops.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using testing::gpt2_like;
using testing::llama_like;
using testing::small_config;

constexpr int64_t kNumLayers = 3, kHidden = 32, kNumHeads = 4, kSequence = 16, kBatch = 4, kPadded = 64;
constexpr int64_t kTokens = kBatch * kSequence;
const std::string kFull = " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1";
const std::string kSelective = " --recompute-granularity selective --recompute-modules core_attn layernorm mlp";

Trainer recording(const std::string& words, DeviceKind device, int num_threads = 1) {
  return Trainer(small_config(words), {.device = device, .num_threads = num_threads, .record_events = true});
}

void expect_equal_plan(const std::string& words, int num_threads = 1) {
  SCOPED_TRACE(words);
  Trainer real = recording(words, DeviceKind::kCpu, num_threads);
  Trainer plan = recording(words, DeviceKind::kMeta, num_threads);
  for (Trainer* trainer : {&real, &plan}) {
    testing::train(*trainer, 0, 2);
    trainer->evaluate(testing::batches_of(trainer->config(), 2));
    trainer->params_norm();
  }
  const Arena &actual = real.device().arena, &planned = plan.device().arena;
  ASSERT_EQ(planned.events().size(), actual.events().size());
  for (size_t i = 0; i < actual.events().size(); ++i)
    ASSERT_EQ(planned.events()[i], actual.events()[i])
        << "event " << i << ": " << planned.events()[i].name << " " << planned.events()[i].bytes << ", really "
        << actual.events()[i].name << " " << actual.events()[i].bytes;
  EXPECT_EQ(planned.total().peak, actual.total().peak);
  EXPECT_EQ(planned.high_water_bytes(), actual.high_water_bytes());
  for (int use = 0; use < kNumMemoryUses; ++use)
    EXPECT_EQ(planned.amount(static_cast<MemoryUse>(use)).peak, actual.amount(static_cast<MemoryUse>(use)).peak);
  EXPECT_EQ(plan.device().num_operations, real.device().num_operations);
  EXPECT_EQ(plan.progress().num_floating_point_operations, real.progress().num_floating_point_operations);
}

TEST(TrainerPlan, IsTheAllocationLogOfTheRealRun) {
  for (const std::string& model : {gpt2_like(), llama_like()})
    for (const std::string precision :
         {"", " --bf16", " --bf16 --use-precision-aware-optimizer --main-params-dtype bf16 --main-grads-dtype bf16"})
      for (const std::string& recompute : {std::string(), kFull, kSelective})
        expect_equal_plan(model + precision + recompute);
}

/// Steps op by op take what a recorded one takes, so the plan of both is the same; a CPU records none.
TEST(TrainerPlan, IsTheSameForStepsThatAreGraphs) {
  const std::string graph = " --cuda-graph-impl full_iteration";
  Trainer op_by_op = recording(gpt2_like(), DeviceKind::kMeta);
  Trainer plan = recording(gpt2_like(graph), DeviceKind::kMeta);
  for (Trainer* trainer : {&op_by_op, &plan}) testing::train(*trainer, 0, 5);
  EXPECT_TRUE(plan.device().arena.events() == op_by_op.device().arena.events());
  EXPECT_EQ(plan.device().num_operations, op_by_op.device().num_operations);
  EXPECT_EQ(plan.graph().num_launches(), 0);
  EXPECT_THROW(recording(gpt2_like(graph), DeviceKind::kCpu), NotSupported);
}

TEST(TrainerPlan, CountsTheWorkspaceOfEachThread) {
  expect_equal_plan(gpt2_like(), 2);
  expect_equal_plan(llama_like("--bf16"), 3);
}

TEST(TrainerPlan, KnowsEveryOption) {
  expect_equal_plan(gpt2_like(
      "--quick-geglu --no-bias-gelu-fusion --softmax-type learnable --window-size 5,0 --window-attn-skip-freq 2 "
      "--qk-layernorm --kv-channels 12 --position-embedding-type yarn --rotary-scaling-factor 4 --glu-linear-offset 1 "
      "--activation-func-clamp-value 7"));
  expect_equal_plan(gpt2_like("--fp16 --loss-scale 64"));
  expect_equal_plan(gpt2_like("--fp64 --optimizer sgd --log-num-zeros-in-grad"));
  expect_equal_plan(
      llama_like("--bf16 --fp32-residual-connection --qk-l2-norm --micro-batch-size 1 --add-qkv-bias "
                 "--attention-output-gate"));
  expect_equal_plan(
      gpt2_like("--hidden-dropout 0 --attention-dropout 0 --position-embedding-type none --no-bias-gelu-fusion"));
}

/// Operations of a step, counted by hand: a multiplication and an addition for each element of a weight and token,
/// three times (forward, gradient of the input, gradient of the weight); attention: two products forward, five
/// backward (scores again, then the gradients of values, probabilities, queries and keys), over pairs of a query and a
/// key that it may see.
struct Count {
  int64_t layer_weights;  // elements of the matrices of a layer
  int64_t pairs;          // query-key pairs of all samples
  int64_t head_size = kHidden / kNumHeads;
  int64_t linear_passes = 3, attention_products = 7;  // more with recompute

  int64_t operations() const {
    const int64_t layers = linear_passes * kTokens * layer_weights + attention_products * pairs * kNumHeads * head_size;
    return 2 * (kNumLayers * layers + 3 * kTokens * kPadded * kHidden);
  }
};

constexpr int64_t kCausalPairs = kBatch * kSequence * (kSequence + 1) / 2;
constexpr int64_t kGpt2Weights = 3 * kHidden * kHidden + kHidden * kHidden + 2 * kHidden * 4 * kHidden;
constexpr int64_t kLlamaWeights = 2 * kHidden * kHidden + kHidden * kHidden + 3 * kHidden * 48;  // 2 of 4 groups

int64_t planned_operations(const std::string& words) {
  Trainer plan = recording(words, DeviceKind::kMeta);
  testing::train(plan, 0, 1);
  return plan.device().num_operations;
}

TEST(TrainerPlan, CountsOperationsAsByHand) {
  EXPECT_EQ(planned_operations(gpt2_like()), (Count{kGpt2Weights, kCausalPairs}.operations()));
  EXPECT_EQ(planned_operations(llama_like()), (Count{kLlamaWeights, kCausalPairs}.operations()));
  // Each layer's forward runs twice.
  const Count full{kGpt2Weights, kCausalPairs, kHidden / kNumHeads, 4, 9};
  EXPECT_EQ(planned_operations(gpt2_like(kFull)), full.operations());
  // Attention's forward runs twice, and the two matrices of the feed-forward.
  const Count selective{kGpt2Weights, kCausalPairs, kHidden / kNumHeads, 3, 9};
  EXPECT_EQ(planned_operations(gpt2_like(kSelective)),
            selective.operations() + 2 * kNumLayers * kTokens * 2 * kHidden * 4 * kHidden);
  // Wide heads: 12 instead of 8 elements in queries, keys, values and the projection.
  const int64_t wide = kLlamaWeights + (2 * kNumHeads + 2 * 2) * 4 * kHidden;
  EXPECT_EQ(planned_operations(llama_like("--kv-channels 12 --micro-batch-size 1")),
            (Count{wide, kCausalPairs, 12}.operations()));
}

TEST(TrainerPlan, CountsOnlyThePairsWithinDocumentsAndWindows) {
  Trainer packed = recording(llama_like("--reset-attention-mask"), DeviceKind::kMeta);
  auto batches = testing::batches_of(packed.config(), 0);
  for (MicroBatch<int64_t>& batch : batches) {  // documents of 6 and 10 tokens
    batch.cuts = {6, 6};
    batch.cut_ends = {1, 2};
  }
  packed.train_step(batches);
  EXPECT_EQ(packed.device().num_operations, (Count{kLlamaWeights, kBatch * (6 * 7 / 2 + 10 * 11 / 2)}.operations()));

  // A query sees itself and at most three keys before: 1 + 2 + 3 and then 4 each. Layer 2 sees everything.
  constexpr int64_t kWindowPairs = kBatch * (1 + 2 + 3 + 13 * 4);
  const int64_t saved = 2 * 2 * 7 * (kCausalPairs - kWindowPairs) * kHidden;  // in two layers
  EXPECT_EQ(planned_operations(llama_like("--window-size 3,0 --window-attn-skip-freq 2")),
            (Count{kLlamaWeights, kCausalPairs}.operations()) - saved);
}

/// Megatron's number counts attention as half of the square, and its backward as twice its forward: 6 products over
/// s^2 / 2 pairs. Exact are s (s + 1) / 2 pairs, and one product more, since scores are not kept.
TEST(TrainerPlan, DiffersFromTheTheoreticalCountByTheDiagonalAndTheScoresMadeAgain) {
  for (const std::string& words : {gpt2_like(), llama_like()}) {
    const TransformerConfig network = small_config(words).transformer;
    const auto theoretical = static_cast<int64_t>(theoretical_flops(network, kBatch, kSequence));
    const int64_t products = 7 * kCausalPairs - 6 * kBatch * kSequence * kSequence / 2;
    EXPECT_EQ(planned_operations(words), theoretical + 2 * kNumLayers * products * kHidden);
  }
}

}  // namespace
}  // namespace megatron
