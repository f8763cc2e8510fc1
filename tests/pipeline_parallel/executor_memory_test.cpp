// Memory and sends of schedules, compared with the simulator, the meta device and closed forms.
#include <gtest/gtest.h>

#include <algorithm>

#include "megatron/pipeline_parallel/simulator.h"
#include "tests/pipeline_parallel/schedule_run.h"

namespace megatron::testing {
namespace {

/// Peak of a step on each rank, in bytes.
std::vector<double> peaks_of(const DeepModelOptions& model, const ScheduleOptions& schedule) {
  std::vector<double> bytes;
  for (const Outcome& out : run_all(model, schedule).ranks)
    bytes.push_back(static_cast<double>(out.peak_bytes - out.base_bytes));
  return bytes;
}

TEST(ExecutorMemory, GrowsByTheActivationsThatTheSimulatorCounts) {
  // 24 layers on 3 ranks. What a rank keeps of one micro-batch shows in GPipe runs of two sizes.
  const DeepModelOptions model{.num_layers = 24};
  const auto gpipe = [&](int m) {
    return peaks_of(model, {.kind = ScheduleKind::kGPipe, .num_ranks = 3, .num_micro_batches = m});
  };
  const std::vector<double> two = gpipe(2), five = gpipe(5);
  for (const ScheduleOptions& schedule :
       {ScheduleOptions{.num_ranks = 3, .num_micro_batches = 8},
        ScheduleOptions{.kind = ScheduleKind::kInterleaved, .num_ranks = 3, .num_chunks = 2, .num_micro_batches = 6},
        ScheduleOptions{.kind = ScheduleKind::kInterleaved,
        .num_ranks = 3,
        .num_chunks = 2,
        .num_micro_batches = 8,
        .micro_batch_group_size = 4},
        ScheduleOptions{.kind = ScheduleKind::kZbH1, .num_ranks = 3, .num_micro_batches = 8},
        ScheduleOptions{.kind = ScheduleKind::kZbV, .num_ranks = 3, .num_chunks = 2, .num_micro_batches = 8}}) {
    const Simulation simulated = simulate(make_schedules(schedule), placement_of(schedule), {});
    const std::vector<double> bytes = peaks_of(model, schedule);
    for (size_t r = 0; r < 3; ++r) {
      const double of_micro_batch = (five[r] - two[r]) / 3, fixed = two[r] - 2 * of_micro_batch;
      const double counted = simulated.ranks[r].peak_activations / schedule.num_chunks;
      EXPECT_NEAR((bytes[r] - fixed) / of_micro_batch, counted, 0.25) << describe(schedule) << " rank " << r;
    }
  }
}

/// Most blocks of a name that a step has at a time.
int64_t peak_blocks(const std::vector<Arena::Event>& events, std::string_view name) {
  int64_t live = 0, peak = 0;
  for (const Arena::Event& event : events)
    if (event.name == name) peak = std::max(peak, live += event.bytes < 0 ? -1 : 1);
  return peak;
}

TEST(ExecutorMemory, KeepsAsManyActivationsAsTheSimulatorCounts) {
  // One layer in each virtual stage, of which W needs one activation to the end.
  for (const ScheduleOptions& schedule : all_schedules()) {
    const Simulation simulated = simulate(make_schedules(schedule), placement_of(schedule), {});
    const RanksOutcome measured = run_all({.num_layers = schedule.num_ranks * schedule.num_chunks}, schedule);
    for (size_t r = 0; r < measured.ranks.size(); ++r)
      EXPECT_EQ(peak_blocks(measured.ranks[r].events, "activation.y"), simulated.ranks[r].peak_activations)
          << describe(schedule) << " rank " << r;
  }
}

TEST(ExecutorMemory, MetaRunOfAnyRankHasTheLogAndThePeakOfTheRealRun) {
  const DeepModelOptions model{.num_layers = 7};
  for (const ScheduleOptions& schedule : all_schedules()) {
    const RanksOutcome real = run_all(model, schedule);
    for (int rank = 0; rank < schedule.num_ranks; ++rank) {
      const Outcome meta = plan_rank(rank, model, schedule);
      const Outcome& own = real.ranks[static_cast<size_t>(rank)];
      EXPECT_EQ(meta.events, own.events) << describe(schedule) << " rank " << rank;
      EXPECT_EQ(meta.peak_bytes, own.peak_bytes);
      EXPECT_GT(meta.events.size(), 20U);
      EXPECT_TRUE(meta.losses.empty());
    }
  }
}

TEST(ExecutorMemory, EachBorderBetweenRanksCarriesEachMicroBatchOnceForthAndBack) {
  const DeepModelOptions model{.num_layers = 7};
  const int64_t payload_bytes = DeepModel::border().shape.num_elements() * size_of(DType::kFloat64);
  for (ScheduleOptions schedule : all_schedules())
    for (const bool forward_only : {false, true}) {
      schedule.forward_only = forward_only;
      const StagePlacement placement = placement_of(schedule);
      for (int rank = 0; rank < schedule.num_ranks; ++rank) {
        int64_t expected = 0;  // payloads out of the rank
        for (int chunk = 0; chunk < schedule.num_chunks; ++chunk) {
          const StagePlace place{.rank = rank, .chunk = chunk};
          const bool sends_on = !placement.is_last(place) && placement.next(place).rank != rank;
          const bool sends_back = !placement.is_first(place) && placement.previous(place).rank != rank;
          expected += (sends_on ? 1 : 0) + (sends_back && !forward_only ? 1 : 0);
        }
        expected *= schedule.num_micro_batches;
        int64_t num_sent = 0, sent_bytes = 0;
        for (const OperationRecord& record : plan_rank(rank, model, schedule).operations) {
          EXPECT_TRUE(record.op == CommOp::kSend || record.op == CommOp::kReceive);
          if (record.op != CommOp::kSend) continue;
          ++num_sent;
          sent_bytes += record.bytes();
        }
        EXPECT_EQ(num_sent, expected) << describe(schedule) << " rank " << rank;
        EXPECT_EQ(sent_bytes, expected * payload_bytes);
      }
    }
}

}  // namespace
}  // namespace megatron::testing
