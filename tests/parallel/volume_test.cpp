// Messages and bytes of one step of every rank against closed forms, group by group: measured on CPU ranks that are
// threads, and on the meta device.
#include <gtest/gtest.h>

#include <algorithm>

#include "megatron/comm/meta/meta_world.h"
#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/config/layouts.h"
#include "tests/parallel/closed_form_volume.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

struct ScheduleWords {
  const char* words = "";
  int64_t chunks = 1;
  bool is_zb_v = false;
};
const std::vector<ScheduleWords> kSchedules = {{""},
                                               {" --pipeline-schedule gpipe"},
                                               {" --pipeline-schedule zb-h1"},
                                               {" --num-virtual-stages-per-pipeline-rank 2", 2},
                                               {" --num-virtual-stages-per-pipeline-rank 3", 3},
                                               {" --pipeline-schedule zb-v", 2, true}};

std::string words_of(const VolumeCase& layout, const ScheduleWords& schedule) {
  std::string words = fmt::format(
      " --bf16 --num-layers {} --global-batch-size {} --micro-batch-size 1 --tensor-model-parallel-size {} "
      "--pipeline-model-parallel-size {}{}",
      layout.num_layers, layout.global_batch, layout.tp, layout.pp, schedule.words);
  if (layout.chunks > 1 && !layout.is_zb_v && layout.num_micro_batches() % layout.pp > 0)
    words += fmt::format(" --microbatch-group-size-per-virtual-pipeline-stage {}", layout.num_micro_batches());
  if (layout.sequence_parallel) words += " --sequence-parallel";
  if (layout.splits > 1)
    words += fmt::format(
        " --tp-comm-overlap --tp-comm-overlap-rs-dgrad --tp-comm-overlap-ag-splits {0} "
        "--tp-comm-overlap-rs-splits {0}",
        layout.splits);
  if (layout.delays_weight) words += " --tp-comm-overlap-delay-wgrad";
  if (layout.shards) words += " --use-distributed-optimizer";
  if (layout.overlaps) words += " --overlap-grad-reduce --ddp-bucket-size 1";
  if (layout.overlaps && layout.shards) words += " --overlap-param-gather";
  if (layout.instances > 1) words += fmt::format(" --num-distributed-optimizer-instances {}", layout.instances);
  if (layout.recomputes) words += " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1";
  return layout.is_llama ? llama_like(words) : gpt2_like(words);
}

Volumes measure(const PretrainConfig& config, World& world, DeviceKind device) {
  const ProcessGroupCollection groups = ProcessGroupCollection::make(world, parallel_layout_of(config));
  Trainer trainer(config, {.device = device, .groups = groups});
  const int64_t first = world.recorder().num_operations();
  trainer.train_step(batches_of(config, 0, groups.dp.rank()));
  EXPECT_LE(world.recorder().num_operations() - first, World::kRecorderCapacity);
  Volumes volumes;
  for (const OperationRecord& record : world.recorder().since(first))
    volumes[std::string(record.group)].add(1, record.bytes());
  return volumes;
}

void expect_volumes(const VolumeCase& layout, const ScheduleWords& schedule, DeviceKind device) {
  const std::string words = words_of(layout, schedule);
  const int num_ranks = static_cast<int>(layout.num_ranks());
  SCOPED_TRACE(fmt::format("{} ranks: {}", num_ranks, words));
  const PretrainConfig config = small_config(words, num_ranks);
  const auto expect_rank = [&](World& world) {
    const int64_t stage = world.rank() / (layout.tp * layout.dp);
    EXPECT_EQ(measure(config, world, device), closed_form_volumes(layout, stage)) << "rank " << world.rank();
  };
  if (device == DeviceKind::kMeta) {
    for (int rank = 0; rank < num_ranks; rank += static_cast<int>(layout.tp * layout.dp)) {
      MetaWorld world(rank, num_ranks);
      expect_rank(world);
    }
  } else {
    ThreadWorld ranks(num_ranks, std::chrono::minutes(1));
    run_rank_threads(ranks, expect_rank);
  }
}

/// Every layout of at most 8 ranks.
void expect_all(DeviceKind device, bool is_llama, bool recomputes) {
  for (const int64_t tp : {1, 2, 4})
    for (const int64_t pp : {1, 2, 4})
      for (const int64_t dp : {1, 2, 3})
        for (const bool sequence_parallel : {false, true})
          for (const bool shards : {false, true})
            for (const ScheduleWords& schedule : kSchedules) {
              if (tp * pp * dp > 8 || (tp == 1 && sequence_parallel)) continue;
              if (pp == 1 && schedule.words != kSchedules[0].words) continue;
              expect_volumes({.is_llama = is_llama,
                              .tp = tp,
                              .pp = pp,
                              .dp = dp,
                              .chunks = schedule.chunks,
                              .sequence_parallel = sequence_parallel,
                              .shards = shards,
                              .recomputes = recomputes,
                              .is_zb_v = schedule.is_zb_v,
                              .num_layers = std::max<int64_t>(4, pp * schedule.chunks)},
                             schedule, device);
            }
}

/// Overlap, with and without shards, and instances of the distributed optimizer, on the layouts that they concern.
void expect_all_ways_to_sum(DeviceKind device, bool is_llama) {
  for (const int64_t tp : {1, 2})
    for (const int64_t pp : {1, 2})
      for (const int64_t dp : {2, 3, 4, 6})
        for (const int64_t instances : {1, 2, 3})
          for (const bool overlaps : {false, true})
            for (const bool shards : {false, true})
              for (const ScheduleWords& schedule : kSchedules) {
                if (tp * pp * dp > 8 || dp % instances > 0 || (instances > 1 && !shards)) continue;
                if (pp == 1 && schedule.words != kSchedules[0].words) continue;
                if (instances == 1 && !overlaps) continue;  // as above
                expect_volumes({.is_llama = is_llama,
                                .tp = tp,
                                .pp = pp,
                                .dp = dp,
                                .chunks = schedule.chunks,
                                .instances = instances,
                                .shards = shards,
                                .is_zb_v = schedule.is_zb_v,
                                .overlaps = overlaps,
                                .num_layers = std::max<int64_t>(4, pp * schedule.chunks)},
                               schedule, device);
              }
}

/// Products of tensor-parallel ranks in parts, alike or not.
void expect_all_parts(DeviceKind device, bool is_llama) {
  for (const int64_t tp : {2, 4})
    for (const int64_t pp : {1, 2})
      for (const int64_t splits : {2, 3, 100})
        for (const bool recomputes : {false, true})
          for (const ScheduleWords& schedule : kSchedules) {
            if (pp == 1 && schedule.words != kSchedules[0].words) continue;
            expect_volumes({.is_llama = is_llama,
                            .tp = tp,
                            .pp = pp,
                            .chunks = schedule.chunks,
                            .sequence_parallel = true,
                            .recomputes = recomputes,
                            .is_zb_v = schedule.is_zb_v,
                            .splits = splits,
                            .delays_weight = !recomputes && !std::string_view(schedule.words).ends_with("zb-h1") &&
                                             !schedule.is_zb_v,
                            .num_layers = std::max<int64_t>(4, pp * schedule.chunks),
                            .global_batch = 4},
                           schedule, device);
          }
}

/// Stages of different sizes, some without layers.
struct UnevenStages {
  int64_t pp = 1;
  ScheduleWords schedule;
  std::vector<int64_t> layers;
};
const std::vector<UnevenStages> kUnevenStages = {
    {2, {" --decoder-first-pipeline-num-layers 1"}, {1, 6}},
    {4, {" --decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 2"}, {3, 1, 1, 2}},
    {4,
     {" --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split --num-layers 6"},
     {1, 2, 2, 1}},
    {2, {" --pipeline-model-parallel-layout Ett|tttttL --pipeline-schedule zb-h1"}, {2, 5}},
    {4, {" --pipeline-model-parallel-layout E|ttt|tttt|L --pipeline-schedule gpipe"}, {0, 3, 4, 0}},
    {2, {" --pipeline-model-parallel-layout Et|ttt||tttL", 2}, {1, 3, 0, 3}},
    {2, {" --pipeline-model-parallel-layout E|tt|t|t||tttL", 3}, {0, 2, 1, 1, 0, 3}},
    {4, {" --pipeline-model-parallel-layout Et|t|t|t|t||tt|L", 2}, {1, 1, 1, 1, 1, 0, 2, 0}},
    {2, {" --pipeline-model-parallel-layout Et||tttt|ttL --pipeline-schedule zb-v", 2, true}, {1, 0, 4, 2}},
    {4,
     {" --pipeline-model-parallel-layout E|t|t|t|t||tt|tL --pipeline-schedule zb-v", 2, true},
     {0, 1, 1, 1, 1, 0, 2, 1}}};

void expect_uneven(DeviceKind device, bool is_llama) {
  for (const UnevenStages& stages : kUnevenStages)
    for (const int64_t tp : {1, 2})
      for (const int64_t dp : {1, 2})
        for (const bool shards : {false, true}) {
          if (tp * stages.pp * dp > 8) continue;
          const bool recomputes = shards != (tp > 1);
          expect_volumes({.is_llama = is_llama,
                          .tp = tp,
                          .pp = stages.pp,
                          .dp = dp,
                          .chunks = stages.schedule.chunks,
                          .sequence_parallel = tp > 1,
                          .shards = shards,
                          .recomputes = recomputes,
                          .is_zb_v = stages.schedule.is_zb_v,
                          .overlaps = shards && recomputes,
                          .num_layers = 7,
                          .layers_of_stages = stages.layers},
                         stages.schedule, device);
        }
}

constexpr DeviceKind kCpu = DeviceKind::kCpu;

TEST(ParallelVolume, OfEveryLayoutOfGpt2OnCpuRanksIsThatOfTheClosedForm) { expect_all(kCpu, false, false); }
TEST(ParallelVolume, OfEveryLayoutOfLlamaOnCpuRanksIsThatOfTheClosedForm) { expect_all(kCpu, true, false); }
TEST(ParallelVolume, OfEveryLayoutOfGpt2WithRecomputeIsThatOfTheClosedForm) { expect_all(kCpu, false, true); }
TEST(ParallelVolume, OfEveryLayoutOfLlamaWithRecomputeIsThatOfTheClosedForm) { expect_all(kCpu, true, true); }
TEST(ParallelVolume, OfOverlapAndOptimizerInstancesIsThatOfTheClosedForm) {
  for (const bool is_llama : {false, true}) expect_all_ways_to_sum(kCpu, is_llama);
}
TEST(ParallelVolume, OfProductsInPartsIsThatOfTheClosedForm) {
  for (const bool is_llama : {false, true}) expect_all_parts(kCpu, is_llama);
}
TEST(ParallelVolume, OfStagesOfDifferentSizesIsThatOfTheClosedForm) {
  for (const bool is_llama : {false, true}) expect_uneven(kCpu, is_llama);
}
TEST(ParallelVolume, OfEveryLayoutOnTheMetaDeviceIsThatOfTheClosedForm) {
  for (const bool is_llama : {false, true}) {
    expect_all(DeviceKind::kMeta, is_llama, false);
    expect_all_ways_to_sum(DeviceKind::kMeta, is_llama);
    expect_all_parts(DeviceKind::kMeta, is_llama);
    expect_uneven(DeviceKind::kMeta, is_llama);
  }
}

}  // namespace
}  // namespace megatron::testing
