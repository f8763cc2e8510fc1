#include "megatron/training/planning/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "megatron/comm/nccl/copied_groups.h"
#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/planning/ranks_memory.h"
#include "tests/testing/rank_places.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using testing::gpt2_like;
using ::testing::HasSubstr;
using testing::llama_like;
using ::testing::Not;
using testing::small_config;

constexpr int64_t kMebibyte = 1 << 20;

/// Compares the plan of a rank with the memory that it takes for three steps and an evaluation on CPUs.
void expect_plan(const PretrainConfig& config, World& world) {
  Trainer trainer(config, {.groups = ProcessGroupCollection::make(world, parallel_layout_of(config))});
  testing::train(trainer, 0, 3);
  trainer.evaluate(testing::batches_of(config, 3, trainer.groups().dp.rank()));
  const MemoryPlan plan = plan_steps(config, world.rank(), DeviceKind::kCpu, testing::places_on_hosts_of(2, 2)).memory;
  const Arena& arena = trainer.device().arena;
  EXPECT_EQ(plan.peak, arena.total().peak);
  EXPECT_EQ(plan.high_water, arena.high_water_bytes());
  for (int use = 0; use < kNumMemoryUses; ++use)
    EXPECT_EQ(plan.peaks.at(static_cast<size_t>(use)), arena.amount(static_cast<MemoryUse>(use)).peak);
}

TEST(MemoryPlan, IsWhatEveryRankOfTheRunHasAtMostToTheByte) {
  for (const std::string& model : {gpt2_like(), llama_like(" --bf16")})
    for (const std::string layout : {"", " --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
                                     " --tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap",
                                     " --num-layers 4 --pipeline-model-parallel-size 2"}) {
      SCOPED_TRACE(model + layout);
      const PretrainConfig config = small_config(model + " --global-batch-size 12" + layout, 2);
      ThreadWorld ranks(2, std::chrono::minutes(1));
      run_rank_threads(ranks, [&](World& world) { expect_plan(config, world); });
    }
}

TEST(MemoryPlan, CountsWhatRanksConnect) {
  const auto plan = [](const std::string& words, int num_ranks, int gpus_of_host = 8) {
    return plan_steps(small_config(llama_like(" --num-layers 4 --global-batch-size 8" + words), num_ranks), 0,
                      DeviceKind::kCpu, testing::places_on_hosts_of(num_ranks, gpus_of_host))
        .memory;
  };
  const MemoryPlan alone = plan("", 1), replicas = plan("", 2);
  EXPECT_EQ(alone.num_communicators, 0);
  EXPECT_GE(replicas.num_communicators, 2);
  EXPECT_EQ(replicas.copies, 0);
  EXPECT_FALSE(alone.cuts_samples);
  EXPECT_THAT(memory_table(plan(" --reset-attention-mask", 1), {}, 0), HasSubstr("cut samples take more"));
  const MemoryPlan both = plan(" --tensor-model-parallel-size 2", 4);
  EXPECT_GT(both.num_communicators, replicas.num_communicators);
  EXPECT_EQ(both.copies, 0);  // sums of whole tensors
  constexpr int64_t kMessage = 16 * 2 * 32 * 4;
  const MemoryPlan rows = plan(" --tensor-model-parallel-size 2 --sequence-parallel", 2),
                   stages = plan(" --pipeline-model-parallel-size 2", 2),
                   far_stages = plan(" --pipeline-model-parallel-size 2 --global-batch-size 16", 16);
  EXPECT_EQ(rows.copies, CopiedGroups::row_bytes(2, kMessage / 2));
  EXPECT_EQ(stages.copies, CopiedGroups::message_bytes(kMessage));
  EXPECT_EQ(far_stages.copies, 0);
  EXPECT_EQ(far_stages.num_communicators, stages.num_communicators + 2 + replicas.num_communicators - 1)
      << "both channels, and the groups of replicas; the world is there twice";
  const MemoryPlan far_rows = plan(" --tensor-model-parallel-size 2 --sequence-parallel", 2, 1),
                   stages_of_hosts = plan(" --pipeline-model-parallel-size 2", 2, 1);
  EXPECT_EQ(far_rows.copies, 0) << "a host each";
  EXPECT_EQ(far_rows.num_communicators, rows.num_communicators) << "sums of whole tensors go by NCCL anyway";
  EXPECT_EQ(stages_of_hosts.copies, 0);
  EXPECT_EQ(stages_of_hosts.num_communicators, stages.num_communicators + 2) << "both channels";
}

TEST(MemoryPlan, TellsWhatDoesNotFit) {
  const MemoryPlan plan{.peak = 900 * kMebibyte, .high_water = 1000 * kMebibyte, .num_communicators = 3};
  const GpuMemory gpu{.total = 4000 * kMebibyte, .in_use = 500 * kMebibyte, .libraries = 1400 * kMebibyte};
  EXPECT_GT(planned_gpu_bytes(plan, gpu), 2900 * kMebibyte);
  EXPECT_LT(planned_gpu_bytes(plan, gpu), 3000 * kMebibyte);
  const std::string table = memory_table(plan, gpu, 7);
  EXPECT_THAT(table, HasSubstr("memory of rank 7, planned"));
  EXPECT_THAT(table, HasSubstr("NCCL, 3 communicators"));
  EXPECT_THAT(table, Not(HasSubstr("MORE than the GPU has")));
  EXPECT_THAT(memory_table({.copies = kMebibyte}, gpu, 0), HasSubstr("copies between GPUs, about"));
  EXPECT_THAT(memory_table({.high_water = 5000 * kMebibyte}, gpu, 0), HasSubstr("MORE than the GPU has"));
  GpuMemory shared = gpu;
  shared.others = 1200 * kMebibyte;
  EXPECT_EQ(planned_gpu_bytes(plan, shared), planned_gpu_bytes(plan, gpu)) << "of this process";
  EXPECT_THAT(memory_table(plan, shared, 0), HasSubstr("MORE than the GPU has")) << "with what others have of it";
}

/// Memory that is measured before the first step returns in the plan, whatever it is: an arena that no longer grows is
/// planned to the byte.
TEST(MemoryPlan, TakesForLibrariesWhatIsNeitherArenaNorContextNorCopies) {
  const GpuMemory before{.total = 80000 * kMebibyte, .in_use = 534 * kMebibyte};
  for (const int64_t arena : {100 * kMebibyte, 40000 * kMebibyte}) {
    const MemoryPlan plan{.high_water = arena, .copies = 64 * kMebibyte, .num_communicators = 2};
    const int64_t in_use = before.in_use + arena + arena / 64 + 16 * kMebibyte + 2345 * kMebibyte + plan.copies;
    GpuMemory gpu = before;
    gpu.libraries = library_bytes(plan, before, in_use, arena);
    EXPECT_GT(gpu.libraries, 2345 * kMebibyte);
    const int64_t code = planned_gpu_bytes(plan, gpu) - in_use;
    EXPECT_GE(code, 0);
    EXPECT_LE(code, 32 * kMebibyte) << "that of the first step";
  }
  EXPECT_EQ(library_bytes({}, before, before.in_use, 100 * kMebibyte), 0) << "never less than nothing";
}

/// The fullest rank speaks for all of them, and no rank that departs from its plan is passed over.
TEST(MemoryPlan, IsToldOfTheRankThatHoldsMost) {
  constexpr int kRanks = 3;
  ThreadWorld ranks(kRanks, std::chrono::minutes(1));
  run_rank_threads(ranks, [&](World& world) {
    const ProcessGroup group = *world.split("all", {{0, 1, 2}});
    const std::array<int64_t, kRanks> held = {1000 * kMebibyte, 3000 * kMebibyte, 2000 * kMebibyte};
    const MemoryPlan plan{.high_water = held.at(static_cast<size_t>(world.rank()))};
    EXPECT_THAT(fullest_memory_table(group, plan, {.total = 80000 * kMebibyte}),
                HasSubstr("memory of rank 1, planned"));
    const int64_t planned = held.at(static_cast<size_t>(world.rank())),
                  off = world.rank() == 2 ? planned / 20 : planned / 100;
    EXPECT_EQ(memory_use_text(group, planned, planned - off),
              "memory of the GPU of rank 1 in use: 2970 MiB, 1.0 % less than planned, 5.0 % at most on any rank");
  });
  const ProcessGroup alone;
  EXPECT_EQ(memory_use_text(alone, 100 * kMebibyte, 102 * kMebibyte),
            "memory of the GPU of rank 0 in use: 102 MiB, 2.0 % more than planned");
}

}  // namespace
}  // namespace megatron
