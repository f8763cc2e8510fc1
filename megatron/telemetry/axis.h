// Axes of a chart: positions of values, and round values for ticks.
#pragma once

#include <string>
#include <vector>

namespace megatron {

enum class AxisScale { kLinear, kLog };

/// A marked value.
struct Tick {
  double value = 0.0;
  std::string label;
};

/// A range of values, linear or logarithmic, widened to be usable: an empty range gets a width, and a logarithmic one
/// is above zero.
class Axis {
 public:
  /// @param low, high  smallest and largest value to show, finite; low > 0 with AxisScale::kLog.
  /// @throw InternalError otherwise.
  Axis(AxisScale scale, double low, double high);

  /// 0 at the low end, 1 at the high end.
  double position(double value) const;

  /// About `target` values: multiples of 1, 2 or 5 times a power of ten; powers of ten, then their double and
  /// fivefold, on a logarithmic axis that spans at least a decade.
  std::vector<Tick> ticks(int target) const;

  /// The same axis with its ends moved outwards to the nearest ticks.
  Axis rounded_out(int target) const;

  double low() const { return low_; }
  double high() const { return high_; }
  AxisScale scale() const { return scale_; }

 private:
  AxisScale scale_;
  double low_;
  double high_;
};

/// Short text of a tick: "0.25", "2", "1500", "20k", "3M", "1e-05". `step` sets the number of decimals.
std::string tick_label(double value, double step);

}  // namespace megatron
