#include "megatron/training/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/comm/nccl/copied_groups.h"
#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/config/layouts.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using testing::gpt2_like;
using ::testing::HasSubstr;
using testing::llama_like;
using ::testing::Not;
using testing::small_config;

constexpr int64_t kMebibyte = 1 << 20;

/// What is needed by rank `rank` of a run of three steps and a validation on CPUs.
void expect_plan(const PretrainConfig& config, World& world) {
  Trainer trainer(config, {.groups = ProcessGroupCollection::make(world, parallel_layout_of(config))});
  testing::train(trainer, 0, 3);
  trainer.evaluate(testing::batches_of(config, 3, trainer.groups().dp.rank()));
  const MemoryPlan plan = plan_steps(config, world.rank(), DeviceKind::kCpu, RankPlaces::on_hosts_of(2, 2)).memory;
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
                      DeviceKind::kCpu, RankPlaces::on_hosts_of(num_ranks, gpus_of_host))
        .memory;
  };
  const MemoryPlan alone = plan("", 1), replicas = plan("", 2);
  EXPECT_EQ(alone.num_communicators, 0);
  EXPECT_GE(replicas.num_communicators, 2);
  EXPECT_EQ(replicas.copies, 0);
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

TEST(MemoryPlan, TellsWhatDoesNotFitAndHowFarTheUseIsFromIt) {
  const MemoryPlan plan{.peak = 900 * kMebibyte, .high_water = 1000 * kMebibyte, .num_communicators = 3};
  const GpuMemory gpu{.total = 4000 * kMebibyte, .in_use = 500 * kMebibyte};
  const int64_t planned = planned_gpu_bytes(plan, gpu);
  EXPECT_GT(planned, 1500 * kMebibyte);
  const std::string table = memory_table(plan, gpu, 7);
  EXPECT_THAT(table, HasSubstr("memory of rank 7, planned"));
  EXPECT_THAT(table, HasSubstr("NCCL, 3 communicators"));
  EXPECT_THAT(table, Not(HasSubstr("MORE than the GPU has")));
  EXPECT_THAT(memory_table({.copies = kMebibyte}, gpu, 0), HasSubstr("copies between GPUs, about"));
  EXPECT_THAT(memory_table({.high_water = 5000 * kMebibyte}, gpu, 0), HasSubstr("MORE than the GPU has"));
  EXPECT_THAT(memory_use_line(plan, gpu, planned + planned / 50), HasSubstr("2.0 % more than planned"));
  EXPECT_THAT(memory_use_line(plan, gpu, planned - planned / 100), HasSubstr("1.0 % less than planned"));
}

}  // namespace
}  // namespace megatron
