#include "megatron/training/planning/memory_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/planning/gpu_memory_check.h"
#include "megatron/training/planning/step_plan.h"
#include "tests/testing/rank_places.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

int64_t planned(const PretrainConfig& config) {
  return plan_steps(config, 0, DeviceKind::kCpu,
                    testing::places_on_hosts_of(static_cast<int>(config.parallel.world_size), 8))
      .memory.high_water;
}

/// For a run of `words` with that part of what it needs.
std::string advice(const std::string& words, double part, int num_ranks = 1) {
  const auto with_flags = [&](const std::string& flags) -> std::optional<PretrainConfig> {
    try {
      return testing::small_config(words + " " + flags, num_ranks);
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  };
  const PretrainConfig config = testing::small_config(words, num_ranks);
  return memory_advice(config, with_flags, planned, static_cast<int64_t>(part * static_cast<double>(planned(config))));
}

TEST(MemoryAdvice, NamesTheFlagsWithWhichTheRunFits) {
  const std::string model = testing::llama_like("--bf16 --num-layers 8 --micro-batch-size 4 --global-batch-size 8");
  EXPECT_THAT(advice(model, 0.95), AllOf(StartsWith("What fits"), HasSubstr("--recompute-granularity full"),
                                         HasSubstr("--micro-batch-size 2")));
  const std::string weights = testing::llama_like("--bf16 --hidden-size 256 --num-layers 4 --micro-batch-size 1");
  EXPECT_THAT(advice(weights, 0.7), AllOf(Not(HasSubstr("with --recompute-granularity full")),
                                          HasSubstr("--use-precision-aware-optimizer"), HasSubstr("8 bytes")));
}

TEST(MemoryAdvice, PlansTheSameRanksInAnotherLayout) {
  const std::string model = testing::gpt2_like("--num-layers 4 --hidden-size 128 --global-batch-size 8");
  EXPECT_THAT(advice(model, 0.9, 2),
              AllOf(HasSubstr("--use-distributed-optimizer"), HasSubstr("--tensor-model-parallel-size 2"),
                    HasSubstr("--pipeline-model-parallel-size 2"), Not(HasSubstr("--nproc-per-node"))));
  EXPECT_THAT(advice(model, 0.9), HasSubstr("--tensor-model-parallel-size 2 --sequence-parallel --nproc-per-node 2"));
}

/// All ranks end alike, though one alone has too little.
TEST(GpuMemoryCheck, RefusesARunWithTheTableOfTheFullestRankAndWhatFits) {
  constexpr int kRanks = 2;
  const std::string words = testing::gpt2_like("--num-layers 4 --hidden-size 128 --global-batch-size 8");
  const PretrainConfig config = testing::small_config(words, kRanks);
  const RankPlaces places = testing::places_on_hosts_of(kRanks, 8);
  const MemoryPlan plan = plan_steps(config, 0, DeviceKind::kCpu, places).memory;
  const auto with_flags = [&](const std::string& flags) -> std::optional<PretrainConfig> {
    return testing::small_config(words + " " + flags, kRanks);
  };
  ThreadWorld ranks(kRanks, std::chrono::minutes(1));
  run_rank_threads(ranks, [&](World& world) {
    const ProcessGroup group = *world.split("all", {{0, 1}});
    const PlannedRun run{
        .config = config, .memory = plan, .backend = DeviceKind::kCpu, .places = places, .with_flags = with_flags};
    const int64_t needed = least_gpu_bytes(plan, {});
    require_plan_fits(group, run, {.total = needed});
    const GpuMemory gpu{.total = world.rank() == 1 ? needed - 1 : 2 * needed};
    EXPECT_THAT([&] { require_plan_fits(group, run, gpu); },
                ::testing::ThrowsMessage<OutOfMemory>(
                    AllOf(HasSubstr("memory of the GPU of rank 1"), HasSubstr("MORE than the GPU has"))));
    const GpuMemory large{.total = 64 << 20, .in_use = (64 << 20) - needed + 1};
    EXPECT_THAT([&] { require_plan_fits(group, run, large); },
                ::testing::ThrowsMessage<OutOfMemory>(HasSubstr("None of these fits")))
        << "code of kernels is counted";
  });
}

TEST(MemoryAdvice, AdmitsThatNothingFits) {
  EXPECT_THAT(advice(testing::llama_like("--bf16"), 0.01), StartsWith("None of these fits alone"));
}

}  // namespace
}  // namespace megatron
