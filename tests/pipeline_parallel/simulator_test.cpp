#include "megatron/pipeline_parallel/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatron/base/error.h"
#include "megatron/pipeline_parallel/pipeline_schedule.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Simulation run(const ScheduleOptions& options, const ActionCosts& costs = {}) {
  return simulate(make_schedules(options), placement_of(options), {.costs = {costs}});
}

/// Idle time of a rank between its first and its last action.
double idle_inside(const RankTimeline& rank) {
  return rank.actions.back().end - rank.actions.front().start - rank.busy;
}

constexpr ActionCosts kUneven{.forward = 10, .backward = 11, .weight = 9};

TEST(Simulator, OneFOneBHasTheBubbleAndThePeakOfThePaper) {
  for (const ActionCosts& costs : {ActionCosts{}, kUneven, ActionCosts{.forward = 3, .backward = 2, .weight = 7}})
    for (int p : {1, 2, 3, 4, 7})
      for (int m : {1, 2, 5, 8, 20})
        for (const auto weight : {WeightGradient::kFused, WeightGradient::kSplit}) {
          const Simulation s = run({.num_ranks = p, .num_micro_batches = m, .weight_gradient = weight}, costs);
          const double step = costs.forward + costs.backward + costs.weight;
          if (weight == WeightGradient::kFused) {
            EXPECT_DOUBLE_EQ(s.makespan, (m + p - 1) * step) << p << " " << m;
            EXPECT_NEAR(s.bubble_fraction(), (p - 1.0) / (m + p - 1), 1e-12);
          } else {
            EXPECT_LE(s.makespan, (m + p - 1) * step) << "the neighbour does not wait for W";
          }
          for (int r = 0; r < p; ++r)
            EXPECT_EQ(s.ranks[static_cast<size_t>(r)].peak_activations, std::min(p - r, m)) << p << " " << m;
        }
}

TEST(Simulator, GPipeKeepsEveryMicroBatch) {
  for (int p : {1, 2, 5})
    for (int m : {1, 3, 9}) {
      const Simulation s = run({.kind = ScheduleKind::kGPipe, .num_ranks = p, .num_micro_batches = m}, kUneven);
      EXPECT_DOUBLE_EQ(s.makespan, (m + p - 1) * 30.0);
      for (const RankTimeline& rank : s.ranks) EXPECT_EQ(rank.peak_activations, m);
    }
}

TEST(Simulator, InterleavingDividesTheBubbleByTheChunks) {
  for (const ActionCosts& costs : {ActionCosts{}, ActionCosts{.forward = 2, .backward = 3, .weight = 1}})
    for (int p : {2, 3, 4, 8})
      for (int v : {1, 2, 3, 4})
        for (int group : {p, p + 1, 2 * p})
          for (int m : {p, 2 * p, 3 * p + 1, 4 * p}) {
            const int left_over = m % group;
            if (group > m || (left_over > 0 && left_over < p)) continue;
            const Simulation s = run({.kind = ScheduleKind::kInterleaved,
                                      .num_ranks = p,
                                      .num_chunks = v,
                                      .num_micro_batches = m,
                                      .micro_batch_group_size = group},
                                     costs);
            const double step = costs.forward + costs.backward + costs.weight;
            // A group above p delays the last micro-batch's turn of chunks where it is not the full group's turn.
            if (group == p && m % p == 0) {
              EXPECT_DOUBLE_EQ(s.makespan, (m * v + p - 1) * step) << p << v << m;
            }
            EXPECT_GE(s.makespan, (m * v + p - 1) * step - 1e-9);
            for (int r = 0; r < p; ++r)
              EXPECT_EQ(s.ranks[static_cast<size_t>(r)].peak_activations,
                        std::min(2 * (p - r - 1) + (v - 1) * group + 1, m * v))
                  << p << " " << v << " " << m << " " << group << " rank " << r;
          }
}

TEST(Simulator, InterleavedExamplesTakeTheKnownTime) {
  struct Case {
    int p, v, m, group;
    double makespan, peak;
  };
  for (const Case& c : {Case{4, 2, 8, 4, 57, 11}, Case{4, 4, 8, 4, 105, 19}, Case{8, 3, 16, 8, 165, 31}}) {
    const Simulation s = run({.kind = ScheduleKind::kInterleaved,
                              .num_ranks = c.p,
                              .num_chunks = c.v,
                              .num_micro_batches = c.m,
                              .micro_batch_group_size = c.group});
    EXPECT_DOUBLE_EQ(s.makespan, c.makespan);
    EXPECT_EQ(s.ranks[0].peak_activations, c.peak);
  }
}

TEST(Simulator, ZbH1TakesTheWeightGradientsOutOfTheBubble) {
  for (const ActionCosts& costs : {ActionCosts{}, kUneven, ActionCosts{.forward = 4, .backward = 5, .weight = 4}})
    for (int p : {2, 3, 4, 6})
      for (int m : {2 * p, 2 * p + 3, 5 * p}) {
        const Simulation s = run({.kind = ScheduleKind::kZbH1, .num_ranks = p, .num_micro_batches = m}, costs);
        for (int r = 0; r < p; ++r) {
          EXPECT_NEAR(s.bubble(r), (p - 1) * (costs.forward + costs.backward - costs.weight), 1e-9) << p << " " << m;
          EXPECT_EQ(s.ranks[static_cast<size_t>(r)].peak_activations, p);
        }
      }
  const Simulation s = run({.kind = ScheduleKind::kZbH1, .num_ranks = 4, .num_micro_batches = 8});
  EXPECT_DOUBLE_EQ(s.makespan, 27);
  for (size_t r = 0; r < 4; ++r) EXPECT_DOUBLE_EQ(idle_inside(s.ranks[r]), 3 - static_cast<double>(r));
}

TEST(Simulator, ZbVHasNoGapAndKeepsAsMuchAsOneFOneB) {
  for (int p : {1, 2, 3, 4, 6, 8})
    for (int m : {2 * p - 1, 2 * p, 2 * p + 3, 5 * p}) {
      const Simulation s = run({.kind = ScheduleKind::kZbV, .num_ranks = p, .num_chunks = 2, .num_micro_batches = m});
      EXPECT_DOUBLE_EQ(s.makespan, 6 * m + p - 1) << "each rank starts one forward later: " << p << " " << m;
      for (const RankTimeline& rank : s.ranks) {
        EXPECT_DOUBLE_EQ(idle_inside(rank), 0) << p << " " << m;
        EXPECT_EQ(rank.peak_activations, 2 * p) << "chunks, each half a rank";
      }
    }
}

TEST(Simulator, DualPipeVHasTheBubbleAndThePeakOfItsOrder) {
  for (const ActionCosts& costs : {ActionCosts{}, kUneven})
    for (int p : {1, 2, 3, 4, 6, 8})
      for (int m : {2 * p, 2 * p + 1, 2 * p + 3, 5 * p}) {
        const Simulation s =
            run({.kind = ScheduleKind::kDualPipeV, .num_ranks = p, .num_chunks = 2, .num_micro_batches = m}, costs);
        for (int r = 0; r < p; ++r) {
          EXPECT_NEAR(s.bubble(r), (p - 1) * (costs.forward + costs.backward - costs.weight), 1e-9) << p << " " << m;
          EXPECT_LE(s.ranks[static_cast<size_t>(r)].peak_activations, 2 * p + 1) << p << " " << m << " rank " << r;
        }
      }
}

TEST(Simulator, EverySizeOfEveryScheduleRuns) {
  for (const auto& [kind, name] : names_of_enum(ScheduleKind{}))
    for (int p = 1; p <= 6; ++p)
      for (int m = 1; m <= 3 * p + 2; ++m)
        for (int v : kind == ScheduleKind::kInterleaved ? std::vector{1, 2, 3}
                                                        : std::vector{traits_of(kind).num_chunks.value()})
          for (const bool forward_only : {false, true}) {
            if (kind == ScheduleKind::kInterleaved && m % p != 0) continue;
            const ScheduleOptions options{
                .kind = kind, .num_ranks = p, .num_chunks = v, .num_micro_batches = m, .forward_only = forward_only};
            for (const double latency : {0.0, 0.3, 5.0})
              for (const ActionCosts& costs : {ActionCosts{}, ActionCosts{.forward = 1, .backward = 7, .weight = 0.1},
                                               ActionCosts{.forward = 5, .backward = 0.1, .weight = 3}}) {
                const Simulation s = simulate(make_schedules(options), placement_of(options),
                                              {.costs = {costs}, .send_latency = latency});
                EXPECT_GT(s.makespan, 0) << name;
                if (forward_only) {
                  EXPECT_EQ(s.ranks[0].peak_activations, 0) << "evaluation keeps nothing";
                }
              }
          }
}

TEST(Simulator, EarlyReceivesCostNoTimeComparedWithUnlimitedBuffers) {
  // Sends have one buffer each and one payload in flight on each border; the schedule is as fast as without limits.
  for (const ScheduleOptions& options :
       {ScheduleOptions{.num_ranks = 4, .num_micro_batches = 9},
        ScheduleOptions{.kind = ScheduleKind::kInterleaved,
        .num_ranks = 3,
        .num_chunks = 4,
        .num_micro_batches = 8,
        .micro_batch_group_size = 5},
        ScheduleOptions{.kind = ScheduleKind::kZbV, .num_ranks = 4, .num_chunks = 2, .num_micro_batches = 9}}) {
    const auto schedules = make_schedules(options);
    std::vector<Schedule> orders = schedules;
    for (Schedule& order : orders) std::erase_if(order, [](const Action& a) { return !is_compute(a.kind); });
    const double limited = simulate(schedules, placement_of(options), {}).makespan;
    EXPECT_DOUBLE_EQ(limited, simulate(orders, placement_of(options), {.has_messages = false}).makespan);
  }
}

TEST(Simulator, UnevenStagesTakeTheTimeOfTheSlowest) {
  const ScheduleOptions options{.num_ranks = 3, .num_micro_batches = 50};
  const Simulation s =
      simulate(make_schedules(options), placement_of(options), {.costs = {{1, 1, 1}, {1, 1, 1}, {2, 2, 2}}});
  EXPECT_NEAR(s.makespan, 50 * 6.0 + 2 * 3.0, 1e-9);
  EXPECT_NEAR(s.bubble(2), 2 * 3.0, 1e-9);
}

// --- schedules that cannot run

constexpr Action act(ActionKind kind, int micro_batch = 0, int chunk = 0) {
  return {.kind = kind, .chunk = chunk, .micro_batch = micro_batch};
}
using enum ActionKind;

TEST(Simulator, NamesRanksAndActionsOfADeadlock) {
  // Rank 0 wants the gradient before it sends the forward that the gradient comes from.
  const std::vector<Schedule> stuck = {{act(kF), act(kRecvBackward), act(kBW), act(kSendForward)},
                                       {act(kRecvForward), act(kF), act(kBW), act(kSendBackward)}};
  EXPECT_THAT(
      [&] {
        simulate(stuck, {2, 1}, {});
      },
      ThrowsMessage<InternalError>(
          AllOf(HasSubstr("wait for each other"),
                HasSubstr("rank 0 waits: BW of micro-batch 0, chunk 0 needs the B of chunk 0 of rank 1"),
                HasSubstr("rank 1 waits: F of micro-batch 0, chunk 0 needs the F of chunk 0 of rank 0"))));
}

TEST(Simulator, ASendThatIsNotReceivedInTimeIsADeadlock) {
  // Rank 1 receives micro-batch 0 only after it has sent something that rank 0 takes after its second send.
  const std::vector<Schedule> stuck = {
      {act(kF, 0), act(kSendForward, 0), act(kF, 1), act(kSendForward, 1), act(kRecvForward, 0, 1), act(kF, 0, 1)},
      {act(kF, 0, 0)}};
  EXPECT_THAT(
      [&] {
        simulate(stuck, {2, 2}, {});
      },
      ThrowsMessage<InternalError>(
          AllOf(HasSubstr("rank 0 waits: send_forward of micro-batch 1, chunk 0 until rank 1 receives the send"),
                HasSubstr("rank 1 waits: F of micro-batch 0, chunk 0"))));
}

TEST(Simulator, RejectsWrongOrdersOfOneRank) {
  const auto refused = [](const Schedule& schedule, const char* reason) {
    EXPECT_THAT(
        [&] {
          simulate({schedule}, {1, 1}, {});
        },
        ThrowsMessage<InternalError>(HasSubstr(reason)))
        << to_string(schedule);
  };
  refused({act(kBW)}, "BW of micro-batch 0, chunk 0 comes before its F");
  refused({act(kF), act(kW), act(kB)}, "W of micro-batch 0, chunk 0 comes before its B");
  refused({act(kF), act(kF), act(kBW)}, "comes twice");
  refused({act(kF), act(kB)}, "has no W of micro-batch 0");
  refused({act(kF, 0), act(kF, 1), act(kBW, 1)}, "has no B of micro-batch 0");
  refused({act(kF, 1), act(kBW, 1)}, "has no F of micro-batch 0");
  refused({act(kF), act(kSendForward)}, "has no neighbour there");
}

TEST(Simulator, RejectsSendsInDifferentOrdersAndMissingOnes) {
  const std::vector<Schedule> crossed = {{act(kF, 0), act(kSendForward, 0), act(kF, 1), act(kSendForward, 1)},
                                         {act(kRecvForward, 1), act(kF, 1), act(kRecvForward, 0), act(kF, 0)}};
  EXPECT_THAT(
      [&] {
        simulate(crossed, {2, 1}, {});
      },
      ThrowsMessage<InternalError>(HasSubstr("both sides must have the same order")));
  const std::vector<Schedule> lost = {{act(kF), act(kSendForward)}, {}};
  EXPECT_THAT(
      [&] {
        simulate(lost, {2, 1}, {});
      },
      ThrowsMessage<InternalError>(HasSubstr("1 messages are sent forward over the border behind stage 0, but 0")));
  const std::vector<Schedule> to_itself = {{act(kF), act(kSendForward), act(kF, 0, 1)}};
  EXPECT_THAT([&] { simulate(to_itself, {1, 2}, {}); }, ThrowsMessage<InternalError>(HasSubstr("needs no send")));
}

TEST(PipelineSchedule, AllMistakesAreReportedTogether) {
  EXPECT_THAT([] { make_schedules({.kind = ScheduleKind::kZbV, .num_ranks = 0, .num_micro_batches = 0}); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("3 mistakes"), HasSubstr("two virtual stages"))));
  EXPECT_THAT(
      [] {
        make_schedules({.kind = ScheduleKind::kInterleaved, .num_ranks = 4, .num_chunks = 2, .num_micro_batches = 6});
      },
      ThrowsMessage<ConfigError>(HasSubstr("6 micro-batches in groups of 4 leave 2 over")));
}

}  // namespace
}  // namespace megatron
