#include "megatron/kernels/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "megatron/base/error.h"

namespace megatron::kernels {
namespace {
double llama3_frequency(double frequency, const Llama3Scaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency, length = static_cast<double>(scaling.original_length);
  if (wavelength < length / scaling.high_frequency_factor) return frequency;
  if (wavelength > length / scaling.low_frequency_factor) return frequency / scaling.factor;
  const double share = (length / wavelength - scaling.low_frequency_factor) /
                       (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return frequency * ((1 - share) / scaling.factor + share);
}

/// Dimensions between which YaRN interpolates from unchanged frequencies to frequencies / factor.
struct YarnRange {
  double low, high;
};
YarnRange yarn_range(const YarnScaling& scaling, double rotated_size, double base) {
  // The dimension whose wave turns `rotations` times over the original length.
  const auto dimension = [&](double rotations) {
    const double length = static_cast<double>(scaling.original_length);
    return rotated_size * std::log(length / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  double low = dimension(scaling.beta_fast), high = dimension(scaling.beta_slow);
  if (scaling.round_range) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotated_size - 1);
  return {low, low == high ? high + 0.001 : high};
}

/// The base for sequences of this length.
double dynamic_base(const DynamicScaling& scaling, double rotated_size, double base) {
  if (scaling.length <= scaling.original_length) return base;
  const double stretch = static_cast<double>(scaling.length) / static_cast<double>(scaling.original_length);
  return base * std::pow(scaling.factor * stretch - (scaling.factor - 1), rotated_size / (rotated_size - 2));
}

int64_t rotated_share(const RopeSettings& settings) {
  require<ConfigError>(settings.percent > 0 && settings.percent <= 1,
                       "[rope] percent {} is not in (0, 1]. It is the share of a head that is rotated.",
                       settings.percent);
  return static_cast<int64_t>(static_cast<double>(settings.head_size) * settings.percent);
}
}  // namespace

int64_t rope_rotated_size(const RopeSettings& settings) {
  const int64_t share = rotated_share(settings), size = (share + 1) / 2 * 2;
  require<ConfigError>(size > 0 && size <= settings.head_size,
                       "[rope] {} of {} elements of a head: rotation takes pairs, and there is no room for {} of them.",
                       share, settings.head_size, std::max<int64_t>(size / 2, 1));
  require<ConfigError>(share == size || settings.scaling != RopeScaling::kYarn,
                       "[rope] YaRN over {} elements of a head: it is defined for an even number.", share);
  require<ConfigError>(settings.scaling != RopeScaling::kDynamic || share > 2,
                       "[rope] dynamic scaling over {} elements of a head: it is defined for more than 2.", share);
  const auto num_factors = std::ssize(settings.longrope.factors);
  require<ConfigError>(settings.scaling != RopeScaling::kLong || num_factors == size / 2,
                       "[rope] LongRoPE has {} factors, and a head rotates {} pairs. Give one for each pair.",
                       num_factors, size / 2);
  return size;
}

std::vector<double> rope_frequencies(const RopeSettings& settings) {
  std::vector<double> frequencies(static_cast<size_t>(rope_rotated_size(settings) / 2));
  const double size = static_cast<double>(rotated_share(settings));
  const bool is_dynamic = settings.scaling == RopeScaling::kDynamic;
  const double base = is_dynamic ? dynamic_base(settings.dynamic, size, settings.base) : settings.base;
  const YarnRange range = yarn_range(settings.yarn, size, settings.base);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double plain = std::pow(base, -2 * static_cast<double>(i) / size);
    double frequency = plain;
    if (settings.scaling == RopeScaling::kLlama3) frequency = llama3_frequency(plain, settings.llama3);
    if (settings.scaling == RopeScaling::kLong) frequency = plain / settings.longrope.factors[i];
    if (settings.scaling == RopeScaling::kYarn) {
      const double ramp = std::clamp((static_cast<double>(i) - range.low) / (range.high - range.low), 0.0, 1.0);
      frequency = plain / settings.yarn.factor * ramp + plain * (1 - ramp);
    }
    frequencies[i] = frequency / settings.interpolation_factor;
  }
  return frequencies;
}

double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

double rope_magnitude(const RopeSettings& settings) {
  if (settings.scaling == RopeScaling::kLong) return settings.longrope.magnitude;
  if (settings.scaling != RopeScaling::kYarn) return 1;
  const YarnScaling& yarn = settings.yarn;
  return yarn_mscale(yarn.factor, yarn.mscale) / yarn_mscale(yarn.factor, yarn.mscale_all_dim);
}

}  // namespace megatron::kernels
