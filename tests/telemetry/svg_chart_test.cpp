#include "megatron/telemetry/svg_chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/telemetry/xml.h"

namespace megatron {
namespace {

using testing::count;
using testing::xml_mistake;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

LineChart chart_of(std::vector<ChartPoint> points) {
  return {.title = "a < b & \"c\"",
          .subtitle = "x > y",
          .x_label = "iteration",
          .y_label = "loss",
          .series = {{"train & co", std::move(points), SeriesStyle::kLine, 0}}};
}

TEST(SvgText, IsWellFormedWhateverTheTextsAndPoints) {
  EXPECT_EQ(xml_mistake(svg_text(chart_of({{0, 4}, {1, 3}, {2, 2.5}}))), "");
  EXPECT_EQ(xml_mistake(svg_text(chart_of({}))), "");
  EXPECT_EQ(xml_mistake(svg_text(chart_of({{1, 1}}))), "");
  EXPECT_EQ(xml_mistake(svg_text(chart_of({{0, kNan}, {1, kNan}}))), "");
  EXPECT_EQ(xml_mistake(svg_text({})), "");
}

TEST(SvgText, NeverHoldsANumberThatIsNotFinite) {
  LineChart chart = chart_of({{0, 4}, {1, kNan}, {2, std::numeric_limits<double>::infinity()}, {3, -1}, {4, 3}});
  chart.y_scale = AxisScale::kLog;
  const std::string svg = svg_text(chart);
  EXPECT_EQ(count(svg, "nan"), 0);
  EXPECT_EQ(count(svg, "inf"), 0);
}

TEST(SvgText, BreaksTheLineAtGaps) {
  const std::string svg = svg_text(chart_of({{0, 4}, {1, 3}, {2, kNan}, {3, 2}, {4, 1}}));
  const auto begin = svg.find("class=\"line s0\"");
  const std::string path = svg.substr(begin, svg.find("/>", begin) - begin);
  EXPECT_EQ(count(path, "M"), 2);
  EXPECT_EQ(count(path, "L"), 2);
}

TEST(SvgText, PutsADotAtEachMarkerAndOneIntoTheLegend) {
  LineChart chart = chart_of({{0, 4}, {1, 3}, {2, kNan}});
  chart.series[0].style = SeriesStyle::kMarkers;
  EXPECT_EQ(count(svg_text(chart), "<circle"), 2 + 1);
}

TEST(SvgText, StaysSmallForManyPoints) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 200'000; ++i) points.push_back({double(i), 2 + std::sin(i)});
  EXPECT_LT(svg_text(chart_of(points)).size(), 40'000u);
}

TEST(Thinned, KeepsTheLowestAndHighestOfEachColumn) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 1000; ++i) points.push_back({double(i), i == 333 ? -5.0 : i == 777 ? 5.0 : 0.0});
  const std::vector<ChartPoint> few = thinned(points, 10);
  EXPECT_LE(few.size(), 2u * 11u);
  EXPECT_NE(std::find(few.begin(), few.end(), (ChartPoint{333, -5.0})), few.end());
  EXPECT_NE(std::find(few.begin(), few.end(), (ChartPoint{777, 5.0})), few.end());
  EXPECT_TRUE(std::is_sorted(few.begin(), few.end(), [](auto a, auto b) { return a.x < b.x; }));
}

TEST(Thinned, CopesWithPointsAboveEachOther) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 100; ++i) points.push_back({1.0, double(i)});
  EXPECT_EQ(svg_text(chart_of(thinned(points, 10))).find("nan"), std::string::npos);
  EXPECT_EQ(thinned(points, 10).back(), (ChartPoint{1.0, 99.0}));
}

TEST(Thinned, LeavesFewPointsAsTheyAre) {
  const std::vector<ChartPoint> points{{0, 1}, {1, 2}, {2, 3}};
  EXPECT_EQ(thinned(points, 10), points);
}

}  // namespace
}  // namespace megatron
