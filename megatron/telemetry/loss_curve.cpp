#include "megatron/telemetry/loss_curve.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/telemetry/svg_chart.h"

namespace megatron {
namespace {

constexpr std::size_t kManyPoints = 60;  // from here on the raw values are noise to the eye

std::vector<ChartPoint> points_of(const std::map<std::int64_t, double>& losses) {
  std::vector<ChartPoint> points;
  points.reserve(losses.size());
  for (const auto& [iteration, loss] : losses) points.push_back({static_cast<double>(iteration), loss});
  return points;
}

/// Sums over a range of points for a straight line through them.
struct LineSums {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;

  LineSums operator+(const LineSums& b) const { return {n + b.n, x + b.x, y + b.y, xx + b.xx, xy + b.xy}; }
  LineSums operator-(const LineSums& b) const { return {n - b.n, x - b.x, y - b.y, xx - b.xx, xy - b.xy}; }

  /// Height at `at` of the line of least squares.
  double height(double at) const {
    const double spread = xx - x * x / n;
    const double slope = spread > 0.0 ? (xy - x * y / n) / spread : 0.0;
    return y / n + slope * (at - x / n);
  }
};

/// Replaces each value by the line fitted to its neighbours, a sixtieth of the points to either side:
/// unlike a moving average this follows a slope without delay. Values that cannot be shown are kept and do not count.
std::vector<ChartPoint> smoothed(std::vector<ChartPoint> points) {
  const std::size_t count = points.size();
  std::vector<LineSums> before(count + 1);  // before[i]: sums over the points [0, i)
  for (std::size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(i);
    const double y = points[i].y;
    before[i + 1] = before[i] + (can_be_shown(y) ? LineSums{1, x, y, x * x, x * y} : LineSums{});
  }
  const std::size_t reach = std::max<std::size_t>(2, count / 60);
  for (std::size_t i = 0; i < count; ++i) {
    if (!can_be_shown(points[i].y)) continue;
    const LineSums window = before[std::min(count, i + reach + 1)] - before[i - std::min(i, reach)];
    points[i].y = window.height(static_cast<double>(i));
  }
  return points;
}

std::string best_text(const std::map<std::int64_t, double>& validation) {
  const auto best =
      std::ranges::min_element(validation, [](const auto& a, const auto& b) { return a.second < b.second; });
  if (best == validation.end()) return "";
  return fmt::format("best validation loss {:.4f} at iteration {}", best->second, best->first);
}

/// The loss `name` of a line: NaN for null, nothing if the line does not have it.
std::optional<double> loss_of(const nlohmann::json& line, const std::string& name, std::int64_t line_number) {
  if (!line.contains(name)) return std::nullopt;
  const nlohmann::json& value = line[name];
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  require<DataError>(value.is_number(), "Line {}: \"{}\" is {}, which is not a number.", line_number, name,
                     value.dump());
  return value.get<double>();
}

/// Calls visit(line, its iteration, its number) for each of the lines.
template <class Visit>
void for_each_line(const std::string& json_lines, Visit visit) {
  std::istringstream in(json_lines);
  std::int64_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("iteration")) {
      require<DataError>(in.peek() == std::istringstream::traits_type::eof(), "Line {} does not have metrics: '{}'.",
                         line_number, line);
      break;
    }
    require<DataError>(object["iteration"].is_number_integer(),
                       "Line {}: \"iteration\" is {}, which is not an integer.", line_number,
                       object["iteration"].dump());
    visit(object, object["iteration"].get<std::int64_t>(), line_number);
  }
}

}  // namespace

std::string LossCurve::svg(std::string_view title, AxisScale y_scale) const {
  LineChart chart{.title = std::string(title),
                  .subtitle = best_text(validation_),
                  .x_label = "iteration",
                  .y_label = "loss",
                  .y_scale = y_scale};
  const std::vector<ChartPoint> raw = points_of(training_);
  const bool many = raw.size() >= kManyPoints;
  if (many) chart.series.push_back({"training", raw, SeriesStyle::kFaint, 0});
  chart.series.push_back({"training", many ? smoothed(raw) : raw, SeriesStyle::kLine, 0});
  if (!validation_.empty()) chart.series.push_back({"validation", points_of(validation_), SeriesStyle::kMarkers, 1});
  return svg_text(chart);
}

LossCurve parse_loss_curve(const std::string& json_lines) {
  LossCurve curve;
  for_each_line(json_lines, [&](const nlohmann::json& line, std::int64_t iteration, std::int64_t number) {
    if (const auto loss = loss_of(line, "lm_loss", number)) curve.add_training(iteration, *loss);
    if (const auto loss = loss_of(line, "validation_lm_loss", number)) curve.add_validation(iteration, *loss);
  });
  return curve;
}

std::map<std::int64_t, double> parse_training_values(const std::string& json_lines, const std::string& name) {
  std::map<std::int64_t, double> values;
  for_each_line(json_lines, [&](const nlohmann::json& line, std::int64_t iteration, std::int64_t number) {
    if (const auto value = loss_of(line, name, number)) values[iteration] = *value;
  });
  return values;
}

}  // namespace megatron
