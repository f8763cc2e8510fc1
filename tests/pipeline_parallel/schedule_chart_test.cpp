#include "megatron/pipeline_parallel/schedule_chart.h"

#include <gtest/gtest.h>

#include <sstream>

#include "megatron/base/error.h"
#include "megatron/pipeline_parallel/pipeline_schedule.h"
#include "tests/telemetry/xml.h"

namespace megatron {
namespace {

using testing::count;
using testing::xml_mistake;

Simulation simulation_of(const ScheduleOptions& options, const ActionCosts& costs = {}) {
  return simulate(make_schedules(options), placement_of(options), {.costs = {costs}});
}

TEST(ScheduleChart, TextShowsRanksAsRowsAndTimeAsColumns) {
  EXPECT_EQ(text_of(simulation_of({.num_ranks = 2, .num_micro_batches = 2}), {}, 120),
            "rank 0 F0 F1 ......B0--- ...B1--- \n"
            "rank 1 ...F0 B0--- F1 B1--- ......\n");
  EXPECT_EQ(text_of(simulation_of({.kind = ScheduleKind::kZbH1, .num_ranks = 2, .num_micro_batches = 2}), {}, 120),
            "rank 0 F0 F1 ...B0 W0 B1 W1 \n"
            "rank 1 ...F0 B0 F1 B1 W0 W1 \n");
}

TEST(ScheduleChart, ChunksAreNamedIfThereAreSeveral) {
  const ScheduleOptions v{.kind = ScheduleKind::kZbV, .num_ranks = 1, .num_chunks = 2, .num_micro_batches = 1};
  EXPECT_EQ(text_of(simulation_of(v), {.num_chunks = 2}, 120), "rank 0 F0.0 F0.1 B0.1 W0.1 B0.0 W0.0 \n");
}

TEST(ScheduleChart, LongStepsContinueInFurtherBands) {
  const std::string text = text_of(simulation_of({.num_ranks = 3, .num_micro_batches = 12}), {}, 50);
  std::istringstream lines(text);
  int num_bands = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 50U);
    num_bands += line.starts_with("from time") ? 1 : 0;
  }
  EXPECT_EQ(num_bands, 5) << text;  // 14 * 3 times of 4 columns each, 40 at a time
  EXPECT_EQ(count(text, "rank 2"), num_bands);
  EXPECT_THROW(text_of(simulation_of({}), {}, 39), ConfigError);
}

TEST(ScheduleChart, VeryShortActionsDoNotMakeTheTextEndless) {
  const std::string text =
      text_of(simulation_of({.num_ranks = 2, .num_micro_batches = 2}, {.forward = 1, .backward = 1, .weight = 1e-6}),
              {}, 10000);
  EXPECT_LT(text.size(), 400U) << text;
}

TEST(ScheduleChart, SvgHasARectangleForEachActionAndIsXml) {
  for (const ScheduleOptions& options :
       {ScheduleOptions{.num_ranks = 3, .num_micro_batches = 4},
        ScheduleOptions{.kind = ScheduleKind::kInterleaved, .num_ranks = 2, .num_chunks = 3, .num_micro_batches = 4},
        ScheduleOptions{.kind = ScheduleKind::kZbV, .num_ranks = 3, .num_chunks = 2, .num_micro_batches = 5}}) {
    const Simulation simulation = simulation_of(options);
    const std::string svg =
        svg_of(simulation, {.title = "a < b & c", .subtitle = "", .num_chunks = options.num_chunks});
    EXPECT_EQ(xml_mistake(svg), "");
    int num_actions = 0;
    for (const RankTimeline& rank : simulation.ranks) num_actions += static_cast<int>(rank.actions.size());
    EXPECT_EQ(count(svg, "of micro-batch"), num_actions);
    EXPECT_EQ(count(svg, ">rank "), options.num_ranks);
    EXPECT_EQ(count(svg, "a &lt; b &amp; c"), 2);
    EXPECT_EQ(count(svg, "nan"), 0);
    EXPECT_EQ(count(svg, "3 is micro-batch 3<"), options.num_chunks > 1 ? 0 : 1);
    EXPECT_EQ(count(svg, "3.1 is micro-batch 3 in chunk 1; odd chunks are lighter<"), options.num_chunks > 1 ? 1 : 0);
  }
}

}  // namespace
}  // namespace megatron
