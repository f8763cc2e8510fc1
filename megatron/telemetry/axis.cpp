#include "megatron/telemetry/axis.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// The multiple of 1, 2 or 5 times a power of ten that cuts `range` into about `target` pieces.
double round_step(double range, int target) {
  const double rough = range / std::max(1, target);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double mantissa = rough / power;
  if (mantissa < 1.5) return power;
  if (mantissa < 3.5) return 2 * power;
  if (mantissa < 7.5) return 5 * power;
  return 10 * power;
}

/// Far below a step, far above rounding errors.
constexpr double kSlack = 1e-6;

std::vector<Tick> linear_ticks(double low, double high, int target) {
  const double step = round_step(high - low, target);
  std::vector<Tick> ticks;
  const auto first = static_cast<long long>(std::ceil(low / step - kSlack));
  const auto last = static_cast<long long>(std::floor(high / step + kSlack));
  for (long long i = first; i <= last; ++i) {
    const double value = static_cast<double>(i) * step;
    ticks.push_back({value, tick_label(value, step)});
  }
  return ticks;
}

/// Values mantissa * 10^k within [low, high].
std::vector<Tick> decade_ticks(double low, double high, const std::vector<double>& mantissas, int every) {
  std::vector<Tick> ticks;
  for (int k = static_cast<int>(std::floor(std::log10(low))); k <= static_cast<int>(std::ceil(std::log10(high))); ++k) {
    if (k % every != 0) continue;
    for (const double mantissa : mantissas) {
      const double value = mantissa * std::pow(10.0, k);
      if (value >= low * (1 - kSlack) && value <= high * (1 + kSlack))
        ticks.push_back({value, tick_label(value, std::pow(10.0, k))});
    }
  }
  return ticks;
}

std::vector<Tick> log_ticks(double low, double high, int target) {
  const double decades = std::log10(high / low);
  if (decades < 1) return linear_ticks(low, high, target);
  if (decades <= target / 3.0) return decade_ticks(low, high, {1, 2, 5}, 1);
  return decade_ticks(low, high, {1}, std::max(1, static_cast<int>(std::ceil(decades / target))));
}

}  // namespace

Axis::Axis(AxisScale scale, double low, double high) : scale_(scale), low_(low), high_(high) {
  require(std::isfinite(low) && std::isfinite(high) && low <= high, "Axis from {} to {} is not a finite range.", low,
          high);
  require(scale == AxisScale::kLinear || low > 0, "A logarithmic axis cannot begin at {}.", low);
  if (low_ < high_) return;
  if (scale == AxisScale::kLog) {
    low_ /= 2;
    high_ *= 2;
  } else {
    const double margin = low == 0.0 ? 1.0 : std::abs(low) / 2;
    low_ -= margin;
    high_ += margin;
  }
}

double Axis::position(double value) const {
  if (scale_ == AxisScale::kLog) return std::log(value / low_) / std::log(high_ / low_);
  return (value - low_) / (high_ - low_);
}

std::vector<Tick> Axis::ticks(int target) const {
  return scale_ == AxisScale::kLog ? log_ticks(low_, high_, target) : linear_ticks(low_, high_, target);
}

Axis Axis::rounded_out(int target) const {
  if (scale_ == AxisScale::kLog && std::log10(high_ / low_) >= 1) {
    constexpr double kMargin = 1.06;  // for a logarithmic range that is not rounded to whole decades
    return {scale_, low_ / kMargin, high_ * kMargin};
  }
  const double step = round_step(high_ - low_, target);
  const double low = std::floor(low_ / step + kSlack) * step;
  return {scale_, scale_ == AxisScale::kLog && low <= 0 ? low_ : low, std::ceil(high_ / step - kSlack) * step};
}

std::string tick_label(double value, double step) {
  const double magnitude = std::abs(value);
  if (value == 0.0) return "0";
  if (magnitude < 1e-3) return fmt::format("{:g}", value);
  if (magnitude >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (magnitude >= 1e4) return fmt::format("{:g}k", value / 1e3);
  const int decimals = std::max(0, -static_cast<int>(std::floor(std::log10(step) + kSlack)));
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace megatron
