// Normal numbers from uniform integers, without calls and branches, so that loops over them become vector instructions.
// No rounding depends on the machine or its mathematical library. Constant expressions are device code too.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace megatron {

/// Natural logarithm of a positive normal number within 2 ulp.
/// x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh f with f = (m - 1) / (m + 1), by its series.
constexpr double series_log(double x) {
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD, kExponentMask = 0xFFF0000000000000, kBias = uint64_t{1024} << 52;
  constexpr double kTwo52 = 0x1p52;
  const uint64_t shifted = std::bit_cast<uint64_t>(x) - kSqrtHalf + kBias;
  const double m = std::bit_cast<double>(std::bit_cast<uint64_t>(x) - (shifted & kExponentMask) + kBias);
  // An integer below 2^52 in the fraction of 2^52 is a conversion to double that every instruction set has.
  const double e = std::bit_cast<double>((shifted >> 52) | std::bit_cast<uint64_t>(kTwo52)) - (kTwo52 + 1024);
  const double f = (m - 1) / (m + 1), s = f * f;
  double p = 1.0 / 23;
  p = p * s + 1.0 / 21;
  p = p * s + 1.0 / 19;
  p = p * s + 1.0 / 17;
  p = p * s + 1.0 / 15;
  p = p * s + 1.0 / 13;
  p = p * s + 1.0 / 11;
  p = p * s + 1.0 / 9;
  p = p * s + 1.0 / 7;
  p = p * s + 1.0 / 5;
  p = p * s + 1.0 / 3;
  return e * std::numbers::ln2 + (2 * f + 2 * f * (s * p));
}

struct SineCosine {
  double sine, cosine;
};
/// Takes 2 pi r / 2^32. The nearest quarter turn is taken off in integers, the rest goes into the Taylor series.
constexpr SineCosine turn(uint32_t r) {
  const uint32_t quarter = (r + (uint32_t{1} << 29)) >> 30;
  const double x = static_cast<double>(static_cast<int32_t>(r - (quarter << 30))) * (2 * std::numbers::pi * 0x1p-32);
  const double z = x * x;
  double s = 1.0 / 355687428096000;
  s = s * z - 1.0 / 1307674368000;
  s = s * z + 1.0 / 6227020800;
  s = s * z - 1.0 / 39916800;
  s = s * z + 1.0 / 362880;
  s = s * z - 1.0 / 5040;
  s = s * z + 1.0 / 120;
  s = s * z - 1.0 / 6;
  s = x + x * (z * s);
  double c = 1.0 / 20922789888000;
  c = c * z - 1.0 / 87178291200;
  c = c * z + 1.0 / 479001600;
  c = c * z - 1.0 / 3628800;
  c = c * z + 1.0 / 40320;
  c = c * z - 1.0 / 720;
  c = c * z + 1.0 / 24;
  c = 1 - (0.5 * z - z * z * c);
  // A quarter turn takes (s, c) to (c, -s).
  const bool odd = (quarter & 1) != 0;
  const double sine = odd ? c : s, cosine = odd ? s : c;
  return {(quarter & 2) != 0 ? -sine : sine, ((quarter + 1) & 2) != 0 ? -cosine : cosine};
}

struct NormalPair {
  double first, second;
};
/// Two independent standard normal numbers (Box and Muller 1958): radius sqrt(-2 log u) with u = (radius_draw + 1/2) /
/// 2^32, angle 2 pi angle_draw / 2^32.
inline NormalPair box_muller(uint32_t radius_draw, uint32_t angle_draw) {
  const double radius = std::sqrt(-2 * series_log((radius_draw + 0.5) * 0x1p-32));
  const SineCosine angle = turn(angle_draw);
  return {radius * angle.cosine, radius * angle.sine};
}

}  // namespace megatron
