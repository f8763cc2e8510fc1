// Every schedule on ranks as threads against one rank: the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "megatron/pipeline_parallel/layout_string.h"
#include "tests/pipeline_parallel/schedule_run.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

/// The same work on one rank.
Outcome run_one(const DeepModelOptions& model, int num_micro_batches) {
  return run_all(model, {.num_micro_batches = num_micro_batches}).all;
}

TEST(ExecutorSchedules, EveryScheduleGivesTheBitsOfOneRank) {
  for (const bool recompute : {false, true}) {
    const DeepModelOptions model{.num_layers = 7, .recompute = recompute};
    std::map<int, Outcome> one;
    for (const ScheduleOptions& schedule : all_schedules()) {
      const int m = schedule.num_micro_batches;
      if (!one.contains(m)) one[m] = run_one(model, m);
      const RanksOutcome many = run_all(model, schedule);
      EXPECT_EQ(many.all.losses, one[m].losses) << describe(schedule);
      EXPECT_EQ(many.all.gradients, one[m].gradients) << describe(schedule);
      EXPECT_EQ(one[m].losses.size(), static_cast<size_t>(m));
    }
  }
}

TEST(ExecutorSchedules, FortyThreeLayersOnThreeRanksWithTwoChunksGiveTheBitsOfOneRank) {
  const DeepModelOptions model{.num_layers = 43};
  const Outcome one = run_one(model, 6);
  for (const ScheduleOptions& schedule :
       {ScheduleOptions{.kind = ScheduleKind::kInterleaved, .num_ranks = 3, .num_chunks = 2, .num_micro_batches = 6},
        ScheduleOptions{.kind = ScheduleKind::kZbV, .num_ranks = 3, .num_chunks = 2, .num_micro_batches = 6}}) {
    const RanksOutcome many = run_all(model, schedule);
    EXPECT_EQ(many.all.losses, one.losses) << describe(schedule);
    EXPECT_EQ(many.all.gradients, one.gradients) << describe(schedule);
  }
}

TEST(ExecutorSchedules, TiedWeightsAddUpOverStagesWithinRounding) {
  const DeepModelOptions model{.num_layers = 5, .is_tied = true};
  const int m = 4;
  const Outcome one = run_one(model, m);
  for (const ScheduleOptions& schedule :
       {ScheduleOptions{.num_ranks = 3, .num_micro_batches = m},
        ScheduleOptions{.kind = ScheduleKind::kZbH1, .num_ranks = 2, .num_micro_batches = m},
        ScheduleOptions{.kind = ScheduleKind::kZbV, .num_ranks = 2, .num_chunks = 2, .num_micro_batches = m}}) {
    const RanksOutcome many = run_all(model, schedule);
    for (const auto& [name, values] : one.gradients) {
      double largest = 0;
      for (double v : values) largest = std::max(largest, std::abs(v));
      const std::vector<double>& sum = many.all.gradients.at(name);
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(sum[i], values[i], tolerance(DType::kFloat64, 12 * m, largest)) << name << describe(schedule);
    }
    EXPECT_EQ(many.all.losses, one.losses);
  }
}

TEST(ExecutorSchedules, StagesWithoutLayersPassTheirInputOn) {
  const DeepModelOptions model{.num_layers = 4};
  const Outcome one = run_one(model, 3);
  for (const char* text : {"E|t*4|L", "Et*4||L", "E||t*4L"}) {
    const PipelineLayout layout = parse_layout(text, {.num_ranks = 3, .num_layers = 4});
    const RanksOutcome many = run_all(model, layout, {.num_ranks = 3, .num_micro_batches = 3});
    EXPECT_EQ(many.all.losses, one.losses) << text;
    EXPECT_EQ(many.all.gradients, one.gradients) << text;
  }
  const PipelineLayout turn = parse_layout("Ett|||ttL", {.num_ranks = 2, .num_layers = 4, .order = StageOrder::kV});
  const RanksOutcome many =
      run_all(model, turn, {.kind = ScheduleKind::kZbV, .num_ranks = 2, .num_chunks = 2, .num_micro_batches = 3});
  EXPECT_EQ(many.all.gradients, one.gradients) << "both sides of the V's turn are empty";
}

TEST(ExecutorSchedules, ReceivesOfDifferentBordersMayBePostedInAnyOrder) {
  // All receives come first, last chunk before first, gradients before activations: only the order on each border is
  // that of the sends.
  const EditSchedule receive_first = [](Schedule& schedule) {
    const auto is_receive = [](const Action& a) {
      return a.kind == ActionKind::kRecvForward || a.kind == ActionKind::kRecvBackward;
    };
    const auto end = std::stable_partition(schedule.begin(), schedule.end(), is_receive);
    std::stable_sort(schedule.begin(), end, [](const Action& a, const Action& b) {
      return std::pair(a.kind, a.chunk) > std::pair(b.kind, b.chunk);
    });
  };
  const DeepModelOptions model{.num_layers = 7};
  const Outcome one = run_one(model, 4);
  for (const ScheduleOptions& schedule :
       {ScheduleOptions{.kind = ScheduleKind::kInterleaved, .num_ranks = 2, .num_chunks = 3, .num_micro_batches = 4},
        ScheduleOptions{.kind = ScheduleKind::kZbV, .num_ranks = 2, .num_chunks = 2, .num_micro_batches = 4}}) {
    const PipelineLayout layout = balanced_layout(7, placement_of(schedule), {});
    const RanksOutcome many = run_all(model, layout, schedule, receive_first);
    EXPECT_EQ(many.all.losses, one.losses) << describe(schedule);
    EXPECT_EQ(many.all.gradients, one.gradients) << describe(schedule);
  }
}

TEST(ExecutorSchedules, EvaluationGivesTheLossesOfOneRank) {
  const DeepModelOptions model{.num_layers = 7};
  for (ScheduleOptions schedule : all_schedules()) {
    schedule.forward_only = true;
    const auto one = run_all(model, {.num_micro_batches = schedule.num_micro_batches, .forward_only = true}).all;
    EXPECT_EQ(run_all(model, schedule).all.losses, one.losses) << describe(schedule);
    EXPECT_EQ(one.losses.size(), static_cast<size_t>(schedule.num_micro_batches));
  }
}

}  // namespace
}  // namespace megatron::testing
