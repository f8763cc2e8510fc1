// Line charts as SVG text: readable at the width of a README, in light and dark surroundings, without any script.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "megatron/telemetry/axis.h"

namespace megatron {

struct ChartPoint {
  double x = 0.0;
  double y = 0.0;

  bool operator==(const ChartPoint&) const = default;
};

enum class SeriesStyle {
  kLine,     // a line
  kFaint,    // a thin pale line, such as the raw values behind a smoothed curve; not in the legend
  kMarkers,  // a line with a dot at each point, for few points
};

/// Says whether a value can be on an axis: it is finite, and differences and sums of such values are finite too.
inline bool can_be_shown(double value) { return std::abs(value) <= 1e100; }

/// One curve. Points whose x or y cannot be shown, or is not above zero on a logarithmic axis, are gaps.
struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;  // x ascending
  SeriesStyle style = SeriesStyle::kLine;
  int color = 0;  // index into the palette, taken modulo its size
};

struct LineChart {
  std::string title;
  std::string subtitle = "";
  std::string x_label = "";
  std::string y_label = "";
  AxisScale x_scale = AxisScale::kLinear;
  AxisScale y_scale = AxisScale::kLinear;
  std::vector<ChartSeries> series = {};
};

/// The whole SVG file. Colors follow the reader's prefers-color-scheme. A line is thinned out to what the picture can
/// show, keeping its lows and highs, so that the file stays small however many points there are.
std::string svg_text(const LineChart& chart);

/// At most two points, the lowest and the highest, of each of `num_columns` equal ranges of x. Order and gaps are kept.
/// @param points  x ascending.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, int num_columns);

}  // namespace megatron
