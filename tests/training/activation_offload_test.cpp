// Values for backward in host memory give the bits of values on the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/planning/step_plan.h"
#include "tests/testing/rank_places.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using testing::gpt2_like;
using testing::llama_like;
using testing::small_config;
using testing::train;

const std::string kSixLayers = " --num-layers 6";
const std::string kExperts =
    " --num-experts 4 --moe-router-topk 2 --moe-grouped-gemm --moe-aux-loss-coeff 0.01 --disable-bias-linear";

struct StepOutcome {
  std::vector<double> losses, gradients, weights;
  bool operator==(const StepOutcome&) const = default;
};
StepOutcome steps_of(Trainer& trainer) {
  StepOutcome outcome{.losses = train(trainer, 0, 3)};
  outcome.gradients = testing::gradients_of(trainer);
  outcome.weights = testing::weights_of(trainer);
  return outcome;
}
StepOutcome steps_of(const std::string& words, const Trainer::Options& options = {}) {
  Trainer trainer(small_config(words), options);
  return steps_of(trainer);
}

std::string layers(int number) { return fmt::format(" --cpu-offloading-num-layers {}", number); }

int64_t peak_of(const Arena& arena) { return arena.amount(MemoryUse::kActivations).peak; }

TEST(LayerOffload, HasTheBitsOfThePlainRun) {
  for (const std::string& model : {gpt2_like(kSixLayers), llama_like(kSixLayers), llama_like(kSixLayers + kExperts)})
    for (const char* more : {"", " --bf16", " --bf16 --fp32-residual-connection", " --micro-batch-size 1"}) {
      const StepOutcome plain = steps_of(model + more);
      for (const int number : {1, 3, 5}) {
        SCOPED_TRACE(fmt::format("{}{}, {} layers", model, more, number));
        EXPECT_TRUE(steps_of(model + more + layers(number)) == plain);
      }
    }
}

TEST(LayerOffload, TouchesDeviceMemoryInKernelsAndCopiesAlone) {
  const std::string words = llama_like(kSixLayers + " --bf16");
  EXPECT_TRUE(steps_of(words + layers(4), {.guard = true}) == steps_of(words));
}

TEST(LayerOffload, MovesActivationsFromTheDeviceToTheHost) {
  const std::string words = llama_like(" --num-layers 8 --bf16");
  std::vector<int64_t> device, host;
  for (const int number : {0, 1, 3, 5}) {
    Trainer trainer(small_config(words + layers(number)), {});
    train(trainer, 0, 1);
    device.push_back(peak_of(trainer.device().arena));
    host.push_back(peak_of(trainer.device().pinned));
    EXPECT_EQ(trainer.device().pinned.amount(MemoryUse::kActivations).live, 0) << "backward has taken all";
  }
  EXPECT_EQ(host[0], 0);
  const int64_t layer = host[1];
  EXPECT_GT(layer, 0);
  EXPECT_EQ(host[2], 3 * layer);
  EXPECT_EQ(host[3], 5 * layer);
  // Three layers fewer; of those that are left, one is on its way back.
  EXPECT_LE(device[2], device[0] - 2 * layer);
  EXPECT_EQ(device[3], device[2] - 2 * layer);
}

TEST(LayerOffload, SendsMemoryThatSeveralValuesShareOnce) {
  Trainer trainer(small_config(gpt2_like(" --num-layers 3 --attention-dropout 0" + layers(1))),
                  {.record_events = true});
  trainer.device().pinned.clear_events();
  train(trainer, 0, 1);
  int64_t largest_of_qkv = 0, num_sent = 0;
  for (const Arena::Event& event : trainer.device().pinned.events())
    if (event.bytes > 0) {
      ++num_sent;
      largest_of_qkv = std::max(largest_of_qkv, event.bytes);
    }
  EXPECT_GT(num_sent, 0);
  // Queries, keys and values are views of one block of a micro-batch of 2 * 16 tokens in fp32.
  EXPECT_LE(largest_of_qkv, 2 * 16 * 4 * 32 * 4) << "nothing but the feed-forward's inner values is as large";
}

TEST(LayerOffload, IsPlannedToTheByteInBothMemories) {
  for (const std::string& model : {gpt2_like(kSixLayers), llama_like(kSixLayers + " --bf16"), llama_like(kExperts)})
    for (const int number : {1, 2}) {
      SCOPED_TRACE(model);
      const PretrainConfig config = small_config(model + layers(number));
      Trainer real(config, {.record_events = true}), plan(config, {.device = DeviceKind::kMeta, .record_events = true});
      for (Trainer* trainer : {&real, &plan}) train(*trainer, 0, 2);
      EXPECT_TRUE(plan.device().arena.events() == real.device().arena.events());
      EXPECT_TRUE(plan.device().pinned.events() == real.device().pinned.events());
      const MemoryPlan memory = plan_steps(config, 0, DeviceKind::kCpu, testing::places_on_hosts_of(1, 1)).memory;
      EXPECT_EQ(memory.host, real.device().pinned.high_water_bytes());
      EXPECT_GT(memory.host, 0);
      EXPECT_EQ(memory.high_water, real.device().arena.high_water_bytes());
    }
}

/// All tensors, as none of these models has one of 2^20 elements.
std::string modules(const std::string& names) {
  return " --fine-grained-activation-offloading --min-offloaded-tensor-size 1 --offload-modules " + names;
}

TEST(ModuleOffload, HasTheBitsOfThePlainRun) {
  for (const std::string& model :
       {gpt2_like(kSixLayers), llama_like(kSixLayers + " --bf16"), llama_like(kSixLayers + kExperts)}) {
    const StepOutcome plain = steps_of(model);
    const bool has_experts = model.find("--num-experts") != std::string::npos;
    for (const std::string& names : {std::string("attn_norm"), std::string("qkv_linear"), std::string("core_attn"),
                                     std::string("core_attn attn_proj"), std::string("mlp_norm"),
                                     std::string(has_experts ? "expert_fc1" : "mlp_norm attn_norm"),
                                     std::string(has_experts ? "moe_act" : "attn_norm core_attn"),
                                     std::string("attn_norm qkv_linear core_attn attn_proj mlp_norm") +
                                         (has_experts ? " expert_fc1 moe_act" : "")}) {
      SCOPED_TRACE(model + ": " + names);
      Trainer trainer(small_config(model + modules(names)), {});
      EXPECT_TRUE(steps_of(trainer) == plain);
      EXPECT_GT(peak_of(trainer.device().pinned), 0);
      EXPECT_EQ(trainer.device().pinned.amount(MemoryUse::kActivations).live, 0);
    }
  }
}

TEST(ModuleOffload, HasTheBitsOfThePlainRunInLatentAttentionAndExpertsOneByOne) {
  const std::string latent =
      gpt2_like(kSixLayers +
                " --multi-latent-attention --position-embedding-type rope --kv-lora-rank 16 --q-lora-rank 16 "
                "--qk-head-dim 8 --qk-pos-emb-head-dim 4 --v-head-dim 8");
  EXPECT_TRUE(steps_of(latent + modules("qkv_linear core_attn attn_proj")) == steps_of(latent));
  const std::string one_by_one = llama_like(kSixLayers + " --num-experts 4 --moe-router-topk 2 --disable-bias-linear");
  EXPECT_TRUE(steps_of(one_by_one + modules("expert_fc1 moe_act")) == steps_of(one_by_one));
}

TEST(ModuleOffload, GoesWithSelectiveRecompute) {
  const std::string words =
      llama_like(kSixLayers + kExperts + " --recompute-granularity selective --recompute-modules ");
  const std::string all = modules("attn_norm qkv_linear core_attn attn_proj mlp_norm");
  for (const std::string& recomputed : {std::string("core_attn layernorm"), std::string("moe")})
    EXPECT_TRUE(steps_of(words + recomputed + all) == steps_of(words + recomputed)) << recomputed;
  const std::string act = words + "moe_act layernorm";
  EXPECT_TRUE(steps_of(act + modules("expert_fc1 moe_act attn_norm")) == steps_of(act));
}

TEST(ModuleOffload, MovesWhatAModuleSavesAndLeavesSmallTensors) {
  const std::string words = llama_like(" --num-layers 8 --bf16");
  Trainer plain(small_config(words), {}), one(small_config(words + modules("attn_norm")), {}),
      more(small_config(words + modules("attn_norm mlp_norm core_attn attn_proj")), {}),
      large(small_config(words + modules("attn_norm") + " --min-offloaded-tensor-size 1000000"), {});
  for (Trainer* trainer : {&plain, &one, &more, &large}) train(*trainer, 0, 1);
  EXPECT_LT(peak_of(one.device().arena), peak_of(plain.device().arena));
  EXPECT_LT(peak_of(more.device().arena), peak_of(one.device().arena));
  EXPECT_GT(peak_of(more.device().pinned), peak_of(one.device().pinned));
  EXPECT_EQ(peak_of(large.device().arena), peak_of(plain.device().arena));
  EXPECT_EQ(peak_of(large.device().pinned), 0);
}

TEST(ModuleOffload, IsPlannedToTheByteInBothMemories) {
  const PretrainConfig config = small_config(
      llama_like(kSixLayers + kExperts + " --bf16" + modules("attn_norm core_attn attn_proj expert_fc1 moe_act")));
  Trainer real(config, {.record_events = true}), plan(config, {.device = DeviceKind::kMeta, .record_events = true});
  for (Trainer* trainer : {&real, &plan}) train(*trainer, 0, 2);
  EXPECT_TRUE(plan.device().arena.events() == real.device().arena.events());
  EXPECT_TRUE(plan.device().pinned.events() == real.device().pinned.events());
}

TEST(ModuleOffload, HasTheBitsOfThePlainRunInEveryPipeline) {
  for (const char* pipeline :
       {" --pipeline-model-parallel-size 2",
        " --num-layers 8 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
        " --pipeline-model-parallel-size 2 --pipeline-schedule zb-h1"}) {
    SCOPED_TRACE(pipeline);
    std::array<std::array<StepOutcome, 2>, 2> outcomes;
    for (size_t way = 0; way < 2; ++way) {
      const std::string offload = way == 0 ? "" : modules("attn_norm qkv_linear core_attn attn_proj mlp_norm");
      const PretrainConfig config = small_config(
          llama_like(" --num-layers 8 --global-batch-size 8 --micro-batch-size 1" + std::string(pipeline) + offload),
          2);
      ThreadWorld ranks(2, std::chrono::minutes(1));
      run_rank_threads(ranks, [&](World& world) {
        Trainer trainer(config, {.groups = ProcessGroupCollection::make(world, parallel_layout_of(config))});
        StepOutcome& outcome = outcomes.at(way).at(static_cast<size_t>(world.rank()));
        for (int64_t step = 0; step < 3; ++step)
          outcome.losses.push_back(trainer.train_step(testing::batches_of(config, step)).loss.mean());
        outcome.weights = testing::weights_of(trainer);
        if (way == 1) {
          EXPECT_GT(trainer.device().pinned.total().peak, 0);
          EXPECT_EQ(trainer.device().pinned.amount(MemoryUse::kActivations).live, 0);
        }
      });
    }
    EXPECT_TRUE(outcomes[0] == outcomes[1]);
  }
}

TEST(LayerOffload, GoesWithTheOptimizerOnTheHost) {
  const std::string words = llama_like(kSixLayers + " --bf16");
  EXPECT_TRUE(steps_of(words + layers(4) + " --optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d") ==
              steps_of(words));
}

TEST(LayerOffload, HasTheBitsOfThePlainRunOnSeveralRanks) {
  for (const char* layout :
       {" --tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap", " --tensor-model-parallel-size 2",
        " --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather", " --context-parallel-size 2",
        " --context-parallel-size 2 --cp-comm-type a2a", " --context-parallel-size 2 --cp-comm-type all_gather"}) {
    SCOPED_TRACE(layout);
    std::array<std::array<StepOutcome, 2>, 2> outcomes;
    for (size_t way = 0; way < 2; ++way) {
      const PretrainConfig config = small_config(llama_like(kSixLayers + layout + layers(way == 0 ? 0 : 3)), 2);
      ThreadWorld ranks(2, std::chrono::minutes(1));
      run_rank_threads(ranks, [&](World& world) {
        Trainer trainer(config, {.groups = ProcessGroupCollection::make(world, parallel_layout_of(config))});
        StepOutcome& outcome = outcomes.at(way).at(static_cast<size_t>(world.rank()));
        for (int64_t step = 0; step < 3; ++step)
          outcome.losses.push_back(
              trainer.train_step(testing::batches_of(config, step, trainer.groups().dp.rank())).loss.mean());
        trainer.finish_param_sync();
        outcome.weights = testing::weights_of(trainer);
        if (way == 1) {
          EXPECT_GT(trainer.device().pinned.total().peak, 0);
        }
      });
    }
    EXPECT_TRUE(outcomes[0] == outcomes[1]);
  }
}

}  // namespace
}  // namespace megatron
