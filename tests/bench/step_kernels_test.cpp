// The kernels that bench measures have the operations and bytes of a step of the model.
#include "megatron/bench/step_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "megatron/comm/meta/meta_world.h"
#include "megatron/training/config/layouts.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using ::testing::Contains;
using testing::gpt2_like;
using testing::llama_like;
using ::testing::Not;
using testing::small_config;

struct StepCount {
  int64_t operations, parameters;
};

/// The counts of a step of rank `rank`, by the trainer on the meta device.
StepCount count_step(const PretrainConfig& config, int rank) {
  const ParallelLayout layout = parallel_layout_of(config);
  MetaWorld world(rank, layout.sizes().world_size);
  const ProcessGroupCollection groups = ProcessGroupCollection::make(world, layout);
  Trainer trainer(config, {.device = DeviceKind::kMeta, .groups = groups});
  trainer.train_step(testing::batches_of(config, 0, groups.dp.rank()));
  StepCount count{.operations = trainer.device().num_operations, .parameters = 0};
  for (const Parameter* parameter : trainer.model().parameters()) count.parameters += parameter->value().num_elements();
  return count;
}

double operations_of(const std::vector<KernelCase>& cases) {
  double sum = 0;
  for (const KernelCase& kernel : cases) sum += kernel.calls * kernel.operations;
  return sum;
}

/// On each pipeline rank.
void expect_counts(const PretrainConfig& config, int num_ranks = 1) {
  const StepShapes shapes = step_shapes_of(config);
  const int pipeline = static_cast<int>(config.parallel.pipeline_model_parallel_size);
  for (int rank = 0; rank < pipeline; ++rank) {
    SCOPED_TRACE(rank);
    const StageParts stage = stage_parts_of(config, rank);
    const StepCount step = count_step(config, rank * num_ranks / pipeline);
    EXPECT_DOUBLE_EQ(operations_of(product_cases(shapes, stage)) + operations_of(attention_cases(shapes, stage)),
                     static_cast<double>(step.operations));
    EXPECT_EQ(num_parameters(shapes, stage), step.parameters);
  }
}

void expect_counts(const std::string& words, int num_ranks = 1) {
  SCOPED_TRACE(words);
  expect_counts(small_config(words, num_ranks), num_ranks);
}

TEST(StepKernels, HaveTheOperationsAndParametersOfATrainingStep) {
  for (const std::string& model : {gpt2_like(), llama_like()}) {
    expect_counts(model);
    expect_counts(model + " --bf16 --micro-batch-size 1");
    expect_counts(model + " --tensor-model-parallel-size 2", 2);
    expect_counts(model + " --tensor-model-parallel-size 4 --sequence-parallel", 4);
    expect_counts(model + " --pipeline-model-parallel-size 3 --micro-batch-size 1", 3);
    expect_counts(model + " --tensor-model-parallel-size 2 --micro-batch-size 1 --use-distributed-optimizer", 4);
  }
}

TEST(StepKernels, ShareSequencesBetweenRanks) {
  const std::string ranks = " --context-parallel-size 2 --micro-batch-size 1 --cp-comm-type ";
  for (const char* type : {"p2p", "all_gather", "a2a"}) expect_counts(llama_like(ranks + type), 2);
  expect_counts(llama_like(ranks + "p2p --tensor-model-parallel-size 2 --sequence-parallel"), 4);
}

TEST(StepKernels, KnowTheKindsOfLayers) {
  const std::string model = llama_like("--micro-batch-size 1 --window-size 5,0 --window-attn-skip-freq 2");
  for (const int num_ranks : {1, 3}) {
    PretrainConfig config =
        small_config(fmt::format("{} --pipeline-model-parallel-size {}", model, num_ranks), num_ranks);
    config.transformer.layer_kinds = {{Mixer::kSelfAttention, FeedForward::kNone},
                                      {Mixer::kNone, FeedForward::kDense},
                                      {Mixer::kNone, FeedForward::kNone}};
    expect_counts(config, num_ranks);
    EXPECT_EQ(stage_parts_of(config, 0).num_attention, 1);
    EXPECT_EQ(stage_parts_of(config, 0).num_feed_forward, num_ranks == 1 ? 1 : 0);
    config.transformer.layer_kinds[1].mixer = Mixer::kStateSpace;
    EXPECT_THROW(stage_parts_of(config, num_ranks / 2), NotSupported);
  }
}

const std::string kExperts = " --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 24 --moe-aux-loss-coeff 0.01 ";

TEST(StepKernels, KnowExperts) {
  expect_counts(llama_like(kExperts));
  expect_counts(llama_like(kExperts + "--bf16 --micro-batch-size 1 --moe-layer-freq [0,1,1]"));
  expect_counts(llama_like(kExperts + "--pipeline-model-parallel-size 3 --micro-batch-size 1"), 3);
  const auto reject = [](auto change) {
    PretrainConfig config = small_config(llama_like(kExperts));
    change(config.transformer, *config.transformer.moe);
    EXPECT_THROW(stage_parts_of(config, 0), NotSupported);
  };
  reject([](auto&, auto& moe) { moe.shared_expert_intermediate_size = 24; });
  reject([](auto&, auto& moe) { moe.latent_size = 16; });
  reject([](auto&, auto& moe) { moe.expert_capacity_factor = 1; });
  reject([](auto&, auto& moe) { moe.apply_probs_on_input = true; });
  reject([](auto&, auto& moe) { moe.grouped_gemm = false; });
  reject([](auto& model, auto&) { model.add_bias_linear = true; });
}

TEST(StepKernels, ShareExpertsBetweenRanks) {
  const std::string words =
      llama_like(kExperts + "--expert-model-parallel-size 2 --use-distributed-optimizer --micro-batch-size 1");
  const PretrainConfig config = small_config(words, 2);
  const StepShapes z = step_shapes_of(config);
  EXPECT_EQ(z.experts.num, 2);
  EXPECT_EQ(z.experts.rows, z.t * 2) << "as many tokens come as go";
  const StageParts stage = stage_parts_of(config, 0);
  const int64_t of_experts = 3 * 2 * 3 * 24 * 32;
  EXPECT_EQ(num_optimized_parameters(config, z, stage), (num_parameters(z, stage) - of_experts + 1) / 2 + of_experts)
      << "both replicas share the dense parameters, no two ranks the experts";
}

TEST(StepKernels, FollowTheOptionsOfTheModel) {
  expect_counts(gpt2_like("--qk-layernorm --add-qkv-bias --disable-bias-linear --kv-channels 12"));
  expect_counts(gpt2_like("--softmax-type learnable --window-size 5,0 --window-attn-skip-freq 3"));
  expect_counts(gpt2_like("--softmax-type learnable --window-size 5,0 --qk-layernorm --normalization RMSNorm"));
  expect_counts(llama_like("--qk-l2-norm --add-qkv-bias --seq-length 15 --max-position-embeddings 15"));
}

std::vector<std::string> names_of(const std::vector<KernelCase>& cases) {
  std::vector<std::string> names;
  for (const KernelCase& kernel : cases) names.push_back(kernel.name);
  return names;
}

std::vector<KernelCase> all_cases(const std::string& words) {
  const PretrainConfig config = small_config(words);
  const StepShapes shapes = step_shapes_of(config);
  const StageParts stage = stage_parts_of(config, 0);
  std::vector<KernelCase> cases = product_cases(shapes, stage);
  for (auto& more :
       {attention_cases(shapes, stage), memory_cases(shapes, stage, num_optimized_parameters(config, shapes, stage))})
    cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

TEST(StepKernels, RunAndFreeTheirMemory) {
  BenchDevice bench(DeviceKind::kCpu, 1);
  const int64_t before = bench.device().arena.total().live;
  const std::string low = " --bf16 --use-distributed-optimizer --use-precision-aware-optimizer --main-grads-dtype bf16";
  const std::string rounded = low + " --main-params-dtype bf16";
  for (const std::string& extra :
       {std::string(), std::string(" --bf16"), std::string(" --fp16"), std::string(" --fp64"), low, rounded})
    for (const std::string& model :
         {gpt2_like(extra), llama_like(extra + " --seq-length 13 --max-position-embeddings 13 --qk-layernorm"),
          llama_like(extra + kExperts),
          gpt2_like(extra + " --softmax-type learnable --window-size 5,0 --optimizer sgd --hidden-dropout 0"),
          llama_like(extra + " --fp32-residual-connection --hidden-dropout 0 --qk-l2-norm")}) {
      const bool is_half = extra.find("16") != std::string::npos;
      if (extra.starts_with(low) && model.find("sgd") != std::string::npos) continue;  // rejected, like the next
      if (!is_half && model.find("fp32-residual") != std::string::npos) continue;
      for (const KernelCase& kernel : all_cases(model)) {
        SCOPED_TRACE(model + ": " + kernel.name);
        const KernelCall call = kernel.prepare(bench.context());
        call();
        call();
        EXPECT_GT(kernel.bytes, 0);
        EXPECT_GT(kernel.calls, 0);
      }
      EXPECT_EQ(bench.device().arena.total().live, before);
    }
}

TEST(StepKernels, AreThoseOfTheModel) {
  const std::vector<std::string> gpt2 = names_of(all_cases(gpt2_like()));
  EXPECT_THAT(gpt2, Contains("layer norm forward"));
  EXPECT_THAT(gpt2, Contains("bias, dropout, add backward"));
  EXPECT_THAT(gpt2, Contains("embedding dropout forward"));
  EXPECT_THAT(gpt2, Contains("qkv bias gradient"));
  EXPECT_THAT(gpt2, Not(Contains("rope forward")));
  const std::vector<std::string> llama = names_of(all_cases(llama_like("--hidden-dropout 0")));
  EXPECT_THAT(llama, Contains("rms norm backward"));
  EXPECT_THAT(llama, Contains("rope backward"));
  EXPECT_THAT(llama, Contains("gated activation forward"));
  EXPECT_THAT(llama, Not(Contains("bias, dropout, add backward")));
  EXPECT_THAT(llama, Not(Contains("qkv bias gradient")));
}

const KernelCase& find(const std::vector<KernelCase>& cases, std::string_view name) {
  return *std::ranges::find(cases, name, &KernelCase::name);
}

// 3 layers, h = 32, 4 heads of 8, s = 16, 2 samples a micro-batch, 2 micro-batches, 64 rows of vocabulary.
TEST(StepKernels, BytesAreThoseOfTheOperands) {
  constexpr double kT = 2 * 16, kH = 32, kV = 64;
  const std::vector<KernelCase> gpt2 = all_cases(gpt2_like("--bf16"));
  EXPECT_EQ(find(gpt2, "layer norm forward").calls, 2 * 3 * 2);
  EXPECT_EQ(find(gpt2, "layer norm forward").bytes, 2 * kT * kH * 2);
  EXPECT_EQ(find(gpt2, "layer norm backward").bytes, 4 * kT * kH * 2);
  EXPECT_EQ(find(gpt2, "final norm backward").bytes, 3 * kT * kH * 2);
  EXPECT_EQ(find(gpt2, "activation backward").bytes, 3 * kT * 4 * kH * 2);
  EXPECT_EQ(find(gpt2, "cross entropy forward").bytes, kT * kV * 2);
  EXPECT_EQ(find(gpt2, "embedding backward").bytes, kT * kH * (2 + 4 + 4));
  EXPECT_EQ(find(gpt2, "qkv bias gradient").bytes, kT * 3 * kH * 2);
  EXPECT_EQ(find(gpt2, "fc1 forward").bytes, 2 * (kT * kH + kT * 4 * kH + 4 * kH * kH));
  EXPECT_EQ(find(gpt2, "fc1 wgrad").bytes, 2 * (kT * kH + kT * 4 * kH) + 2 * 4 * 4 * kH * kH);
  // fp32 weights, gradient, two moments; all but the gradient are written, and so is the bf16 weight.
  const StepShapes shapes = step_shapes_of(small_config(gpt2_like("--bf16")));
  const auto n = static_cast<double>(
      num_parameters(shapes, {.num_attention = 3, .num_feed_forward = 3, .has_embedding = true, .has_head = true}));
  EXPECT_EQ(find(gpt2, "Adam").bytes, n * (7 * 4 + 2));
  EXPECT_EQ(find(gpt2, "gradient norm").bytes, n * 4);
  const std::vector<KernelCase> low =
      all_cases(gpt2_like("--bf16 --use-distributed-optimizer --use-precision-aware-optimizer --exp-avg-dtype bf16 "
                          "--exp-avg-sq-dtype bf16 --main-grads-dtype bf16"));
  // Weight, its remainder and two moments of two bytes each are read and written, a gradient of two bytes is read.
  EXPECT_EQ(find(low, "Adam").bytes, n * (4 * 4 + 2));
  EXPECT_EQ(find(low, "gradient norm").bytes, n * 2);
  EXPECT_EQ(find(low, "fc1 wgrad").bytes, 2 * (kT * kH + kT * 4 * kH) + 2 * 2 * 4 * kH * kH);
  // Without a remainder: weight and moments are read and written, the gradient is read.
  const std::vector<KernelCase> rounded =
      all_cases(gpt2_like("--bf16 --use-precision-aware-optimizer --main-params-dtype bf16 --exp-avg-dtype bf16 "
                          "--exp-avg-sq-dtype bf16 --main-grads-dtype bf16"));
  EXPECT_EQ(find(rounded, "Adam").bytes, n * (3 * 4 + 2));
  const std::vector<KernelCase> llama = all_cases(llama_like("--micro-batch-size 4"));
  EXPECT_EQ(find(llama, "gated activation backward").bytes, 5 * 2 * kT * 48 * 4);
  EXPECT_EQ(find(llama, "rope forward").bytes, 2 * 2 * kT * (4 + 2) * 8 * 4);
  EXPECT_EQ(find(llama, "rope forward").calls, 3);
  // One micro-batch writes the whole table and no gradient is added to another.
  EXPECT_EQ(find(llama, "embedding backward").bytes, 2 * kT * kH * 4 + kV * kH * 4);
  EXPECT_EQ(find(llama, "proj wgrad").bytes, 4 * (2 * 2 * kT * kH + kH * kH));
}

// 3 layers of 4 experts of 24, top-2: 64 rows of 32 tokens a micro-batch, 2 micro-batches.
TEST(StepKernels, BytesAndOperationsOfExpertsAreThoseOfTheOperands) {
  constexpr double kT = 2 * 16, kRows = 2 * kT, kH = 32, kF = 24, kE = 4;
  const std::string words = llama_like("--bf16" + kExperts + "--global-batch-size 4");
  const std::vector<KernelCase> cases = all_cases(words);
  EXPECT_EQ(find(cases, "experts fc1 forward").calls, 3 * 2);
  EXPECT_EQ(find(cases, "experts fc1 forward").operations, 2 * kRows * kH * 2 * kF);
  EXPECT_EQ(find(cases, "experts fc1 dgrad").bytes, 2 * (kRows * (kH + 2 * kF) + kE * kH * 2 * kF));
  EXPECT_EQ(find(cases, "experts fc2 wgrad").bytes, 2 * kRows * (kH + kF) + 2 * 4 * kE * kH * kF);
  EXPECT_EQ(find(cases, "permute forward").bytes, 2 * (kT + kRows) * kH);
  EXPECT_EQ(find(cases, "unpermute backward").bytes, 2 * (kT + kRows) * kH);
  EXPECT_EQ(find(cases, "weighted activation forward").bytes, 2 * 3 * kRows * kF);
  EXPECT_EQ(find(cases, "weighted activation backward").bytes, 2 * 5 * kRows * kF);
  const PretrainConfig config = small_config(words);
  const std::vector<KernelCase> loops = expert_loop_cases(step_shapes_of(config), stage_parts_of(config, 0));
  ASSERT_EQ(loops.size(), 6u);
  BenchDevice bench(DeviceKind::kCpu, 1);
  for (const KernelCase& loop : loops) {
    const KernelCase& grouped = find(cases, loop.name.substr(0, loop.name.find(',')));
    EXPECT_EQ(loop.operations, grouped.operations) << loop.name;
    EXPECT_EQ(loop.bytes, grouped.bytes) << loop.name;
    EXPECT_EQ(loop.calls, 0) << "it is no part of a step";
    loop.prepare(bench.context())();
  }
}

TEST(StepKernels, CutTheOutputLayerAsTheLossDoes) {
  const PretrainConfig config = small_config(llama_like("--vocab-size 300000000"));
  const StepShapes z = step_shapes_of(config);
  const std::vector<KernelCase> cases = all_cases(llama_like("--vocab-size 300000000"));
  const auto all = static_cast<double>(z.t * z.num_microbatches) * static_cast<double>(z.v);
  for (const char* name : {"output forward", "output dgrad", "output wgrad"}) {
    const KernelCase& kernel = find(cases, name);
    const double logits = kernel.operations / (2.0 * static_cast<double>(z.h));
    EXPECT_LE(logits, std::numeric_limits<int32_t>::max()) << name;
    EXPECT_DOUBLE_EQ(kernel.calls * logits, all) << name;
  }
  for (const auto& [name, passes] : {std::pair{"cross entropy forward", 1.0}, {"cross entropy backward", 2.0}})
    EXPECT_DOUBLE_EQ(find(cases, name).calls * find(cases, name).bytes,
                     passes * static_cast<double>(size_of(z.model.params_dtype)) * all);
}

}  // namespace
}  // namespace megatron
