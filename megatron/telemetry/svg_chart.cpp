#include "megatron/telemetry/svg_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

namespace megatron {
namespace {

// Sizes in pixels of the picture's own coordinates.
constexpr double kWidth = 860, kHeight = 440;
constexpr double kLeft = 72, kRight = 784, kTop = 104, kBottom = 382;
constexpr double kMarginX = 28;        // margin of the card's texts
constexpr double kLabelDistance = 17;  // between two values written at the end of curves
constexpr int kTicksX = 8, kTicksY = 6;

struct Color {
  std::string_view light, dark;
};
constexpr std::array<Color, 6> kPalette{{{"#2563eb", "#60a5fa"},
                                         {"#ea580c", "#fb923c"},
                                         {"#059669", "#34d399"},
                                         {"#9333ea", "#c084fc"},
                                         {"#db2777", "#f472b6"},
                                         {"#57606a", "#9ca3af"}}};

int color_index(const ChartSeries& series) { return series.color % static_cast<int>(kPalette.size()); }

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

bool shown_on(AxisScale scale, double value) {
  return can_be_shown(value) && (scale == AxisScale::kLinear || value > 0);
}

/// The axes around all points, and the position of a point in the picture.
class Frame {
 public:
  explicit Frame(const LineChart& chart)
      : x_axis_(from_zero(range(chart, chart.x_scale, &ChartPoint::x))),
        y_axis_(range(chart, chart.y_scale, &ChartPoint::y).rounded_out(kTicksY)) {}

  const Axis& x_axis() const { return x_axis_; }
  const Axis& y_axis() const { return y_axis_; }
  double x(double value) const { return kLeft + (kRight - kLeft) * x_axis_.position(value); }
  double y(double value) const { return kBottom - (kBottom - kTop) * y_axis_.position(value); }
  bool shows(ChartPoint point) const {
    return shown_on(x_axis_.scale(), point.x) && shown_on(y_axis_.scale(), point.y);
  }

 private:
  /// The axis over the points that can be shown; 1 to 10 if there are none.
  static Axis range(const LineChart& chart, AxisScale scale, double ChartPoint::*coordinate) {
    std::optional<std::pair<double, double>> ends;
    for (const ChartSeries& series : chart.series) {
      for (const ChartPoint& point : series.points) {
        if (!shown_on(chart.x_scale, point.x) || !shown_on(chart.y_scale, point.y)) continue;
        const double value = point.*coordinate;
        if (!ends) ends = {value, value};
        ends = {std::min(ends->first, value), std::max(ends->second, value)};
      }
    }
    return ends ? Axis(scale, ends->first, ends->second) : Axis(scale, 1, 10);
  }

  /// An axis that begins just above zero begins at zero.
  static Axis from_zero(const Axis& axis) {
    const bool near = axis.scale() == AxisScale::kLinear && axis.low() > 0 && axis.low() < 0.1 * axis.high();
    return near ? Axis(axis.scale(), 0.0, axis.high()) : axis;
  }

  Axis x_axis_;
  Axis y_axis_;
};

/// Collects the elements of the file.
class Canvas {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  void label(double x, double y, std::string_view css_class, std::string_view anchor, std::string_view text) {
    add(R"(<text x="{:.1f}" y="{:.1f}" class="{}" text-anchor="{}">{}</text>)", x, y, css_class, anchor, escaped(text));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void add_style(Canvas& canvas) {
  canvas.add("<style>");
  canvas.add("text{{font-family:-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px}}");
  canvas.add(".card{{fill:#ffffff;stroke:#d0d7de}} .title{{fill:#1f2328;font-size:18px;font-weight:600}}");
  canvas.add(".muted{{fill:#656d76}} .value{{font-weight:600}} .grid{{stroke:#e7ebef}} .axis{{stroke:#afb8c1}}");
  canvas.add(".line{{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}}");
  canvas.add(".faint{{fill:none;stroke-width:1;stroke-opacity:.3;stroke-linejoin:round}} .dot{{stroke:#ffffff}}");
  for (std::size_t i = 0; i < kPalette.size(); ++i)
    canvas.add(".s{0}{{stroke:{1}}} .f{0}{{fill:{1}}}", i, kPalette[i].light);
  canvas.add("@media (prefers-color-scheme:dark){{");
  canvas.add(".card{{fill:#0d1117;stroke:#30363d}} .title{{fill:#e6edf3}} .muted{{fill:#8d96a0}}");
  canvas.add(".grid{{stroke:#21262d}} .axis{{stroke:#484f58}} .dot{{stroke:#0d1117}}");
  for (std::size_t i = 0; i < kPalette.size(); ++i)
    canvas.add(".s{0}{{stroke:{1}}} .f{0}{{fill:{1}}}", i, kPalette[i].dark);
  canvas.add("}}");
  canvas.add("</style>");
}

void add_axes(Canvas& canvas, const LineChart& chart, const Frame& frame) {
  for (const Tick& tick : frame.y_axis().ticks(kTicksY)) {
    const double y = frame.y(tick.value);
    canvas.add(R"(<path class="grid" d="M{:.1f} {:.1f}H{:.1f}"/>)", kLeft, y, kRight);
    canvas.label(kLeft - 10, y + 4, "muted", "end", tick.label);
  }
  canvas.add(R"(<path class="axis" d="M{:.1f} {:.1f}H{:.1f}"/>)", kLeft, kBottom, kRight);
  for (const Tick& tick : frame.x_axis().ticks(kTicksX)) {
    const double x = frame.x(tick.value);
    canvas.add(R"(<path class="axis" d="M{:.1f} {:.1f}v5"/>)", x, kBottom);
    canvas.label(x, kBottom + 20, "muted", "middle", tick.label);
  }
  canvas.label(kMarginX, kTop - 14, "muted", "start", chart.y_label);
  canvas.label((kLeft + kRight) / 2, kBottom + 42, "muted", "middle", chart.x_label);
}

/// Path commands: a new stroke begins after each gap.
std::string path_of(const std::vector<ChartPoint>& points, const Frame& frame) {
  std::string path;
  bool pen_down = false;
  for (const ChartPoint& point : points) {
    if (frame.shows(point))
      path += fmt::format("{}{:.1f} {:.1f}", pen_down ? 'L' : 'M', frame.x(point.x), frame.y(point.y));
    pen_down = frame.shows(point);
  }
  return path;
}

void add_curve(Canvas& canvas, const ChartSeries& series, const Frame& frame) {
  const int color = color_index(series);
  constexpr int kColumns = static_cast<int>(kRight - kLeft);
  const bool faint = series.style == SeriesStyle::kFaint;
  canvas.add(R"(<path class="{} s{}" d="{}"/>)", faint ? "faint" : "line", color,
             path_of(thinned(series.points, kColumns), frame));
  if (series.style != SeriesStyle::kMarkers) return;
  for (const ChartPoint& point : series.points)
    if (frame.shows(point))
      canvas.add(R"(<circle class="dot f{}" cx="{:.1f}" cy="{:.1f}" r="4"/>)", color, frame.x(point.x),
                 frame.y(point.y));
}

/// Writes the last value of each curve to its right, moved apart if they would overlap.
void add_last_values(Canvas& canvas, const LineChart& chart, const Frame& frame) {
  struct Label {
    double y;
    int color;
    std::string text;
  };
  std::vector<Label> labels;
  for (const ChartSeries& series : chart.series) {
    if (series.style == SeriesStyle::kFaint) continue;
    const auto last = std::find_if(series.points.rbegin(), series.points.rend(),
                                   [&](ChartPoint point) { return frame.shows(point); });
    if (last != series.points.rend())
      labels.push_back({frame.y(last->y), color_index(series), fmt::format("{:#.4g}", last->y)});
  }
  std::ranges::sort(labels, {}, &Label::y);
  for (std::size_t i = 1; i < labels.size(); ++i) labels[i].y = std::max(labels[i].y, labels[i - 1].y + kLabelDistance);
  for (const Label& label : labels)
    canvas.label(kRight + 12, label.y + 4, fmt::format("value f{}", label.color), "start", label.text);
}

void add_legend(Canvas& canvas, const LineChart& chart) {
  constexpr double kCharacterWidth = 6.8, kSwatch = 18, kGap = 22;
  double x = kWidth - kMarginX;
  for (auto series = chart.series.rbegin(); series != chart.series.rend(); ++series) {
    if (series->style == SeriesStyle::kFaint) continue;
    const int color = color_index(*series);
    x -= kCharacterWidth * static_cast<double>(series->name.size());
    canvas.label(x, 42, "muted", "start", series->name);
    canvas.add(R"(<path class="line s{}" d="M{:.1f} 38h{:.1f}"/>)", color, x - kSwatch - 7, kSwatch);
    if (series->style == SeriesStyle::kMarkers)
      canvas.add(R"(<circle class="dot f{}" cx="{:.1f}" cy="38" r="4"/>)", color, x - 7 - kSwatch / 2);
    x -= kSwatch + 7 + kGap;
  }
}

}  // namespace

std::string svg_text(const LineChart& chart) {
  const Frame frame(chart);
  Canvas canvas;
  canvas.add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img">)",
             kWidth, kHeight);
  canvas.add("<title>{}</title>", escaped(chart.title));
  add_style(canvas);
  canvas.add(R"(<rect class="card" x=".5" y=".5" width="{}" height="{}" rx="10"/>)", kWidth - 1, kHeight - 1);
  canvas.label(kMarginX, 42, "title", "start", chart.title);
  if (!chart.subtitle.empty()) canvas.label(kMarginX, 62, "muted", "start", chart.subtitle);
  add_axes(canvas, chart, frame);
  for (const ChartSeries& series : chart.series) add_curve(canvas, series, frame);
  add_last_values(canvas, chart, frame);
  add_legend(canvas, chart);
  canvas.add("</svg>");
  return canvas.take();
}

std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, int num_columns) {
  if (points.size() <= 2 * static_cast<std::size_t>(num_columns)) return points;
  const double low = points.front().x;
  const double width = (points.back().x - low) / num_columns;
  std::vector<ChartPoint> result;
  for (std::size_t begin = 0; begin < points.size();) {
    if (!std::isfinite(points[begin].y)) {
      result.push_back(points[begin++]);
      continue;
    }
    const auto column_of = [&](const ChartPoint& point) { return std::floor((point.x - low) / width); };
    std::size_t end = begin + 1;
    while (end < points.size() && std::isfinite(points[end].y) && column_of(points[end]) == column_of(points[begin]))
      ++end;
    auto [lowest, highest] = std::minmax_element(points.begin() + static_cast<std::ptrdiff_t>(begin),
                                                 points.begin() + static_cast<std::ptrdiff_t>(end),
                                                 [](auto a, auto b) { return a.y < b.y; });
    if (highest < lowest) std::swap(lowest, highest);
    result.push_back(*lowest);
    if (highest != lowest) result.push_back(*highest);
    begin = end;
  }
  return result;
}

}  // namespace megatron
