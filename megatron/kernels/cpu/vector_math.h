// exp and its relatives for use inside simd_for: without branches, tables and calls for fp32; std:: for fp64.
// Polynomials are minimax fits (Lawson's weighted least squares on Chebyshev nodes) in the relative error. std::fma is
// one instruction in the AVX2 and AVX-512 versions of a loop; machines without it call the library's, with the same
// results.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace megatron::kernels {

/// e^x = significand * 2^k; the low bits of `shifted` are k, the others the same for all x.
struct ReducedExponential {
  float significand;
  uint32_t shifted;
};
/// x = k ln 2 + r, |r| <= ln 2 / 2; 1.5 * 2^23 added to a small number leaves its nearest integer in the low bits.
inline ReducedExponential reduced_exponential(float x) {
  const float shifted = std::fma(x, 1.44269504f, 12582912.0f);
  const float k = shifted - 12582912.0f;
  float r = std::fma(k, -0.693359375f, x);  // ln 2 in two parts, k times the first is exact
  r = std::fma(k, 2.12194440e-4f, r);
  float p = 1.3813142e-3f;
  p = std::fma(p, r, 8.3694188e-3f);
  p = std::fma(p, r, 4.1668456e-2f);
  p = std::fma(p, r, 1.6666515e-1f);
  p = std::fma(p, r, 0.49999994f);
  return {std::fma(p, r * r, r) + 1.0f, std::bit_cast<uint32_t>(shifted)};
}

/// e^x within 2 ulp where the result is normal; 0 and infinity outside of the range; NaN stays NaN.
inline float exponential(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const ReducedExponential y = reduced_exponential(x);
  // 2^k as a product of two powers, so that subnormal results and overflow come out right.
  const int32_t exponent = static_cast<int32_t>(y.shifted - 0x4B400000u);
  const int32_t half = exponent >> 1;
  const float scale1 = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
  const float scale2 = std::bit_cast<float>(static_cast<uint32_t>(exponent - half + 127) << 23);
  return y.significand * scale1 * scale2;
}
inline double exponential(double x) { return std::exp(x); }

/// e^x for x <= 0, within 2 ulp; 0 where it is below 1.6e-38, so that one product scales. NaN stays NaN.
inline float decaying_exponential(float x) {
  const ReducedExponential y = reduced_exponential(x);
  const float power = y.significand * std::bit_cast<float>((y.shifted << 23) + 0x3F800000u);
  return x < -87.0f ? 0.0f : power;
}
inline double decaying_exponential(double x) { return std::exp(x); }

/// 1 / (1 + e^-x)
template <class C>
C sigmoid(C x) {
  return C(1) / (C(1) + exponential(-x));
}

/// tanh x within 3 ulp. A polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel.
inline float hyperbolic_tangent(float x) {
  const float magnitude = x < 0 ? -x : x;
  const float z = x * x;
  float p = -5.704978e-3f;
  p = std::fma(p, z, 2.0639079e-2f);
  p = std::fma(p, z, -5.3739712e-2f);
  p = std::fma(p, z, 1.3331442e-1f);
  p = std::fma(p, z, -3.333328e-1f);
  const float near_zero = std::fma(p * z, x, x);
  const float far = 1.0f - 2.0f / (exponential(2.0f * magnitude) + 1.0f);
  return magnitude < 0.625f ? near_zero : (x < 0 ? -far : far);
}
inline double hyperbolic_tangent(double x) { return std::tanh(x); }

/// Distribution and density of the standard normal law, which GELU and its derivative need together.
template <class C>
struct NormalLaw {
  C distribution, density;
};
/// Errors below 1.5e-7 (2.5 eps of fp32). The tail is density-like: e^(-x^2/2) w P(w) with w = 1 / (1 + 0.3 |x|), the
/// form of Abramowitz and Stegun 26.2.17.
inline NormalLaw<float> normal_law(float x) {
  const float magnitude = x < 0 ? -x : x;
  const float e = decaying_exponential(-0.5f * x * x);
  const float w = 1.0f / std::fma(0.3f, magnitude, 1.0f);
  float p = 3.5932042e-2f;
  p = std::fma(p, w, -1.5827717e-1f);
  p = std::fma(p, w, 2.0820843e-1f);
  p = std::fma(p, w, -5.5395365e-2f);
  p = std::fma(p, w, 1.2946993e-1f);
  p = std::fma(p, w, 9.96373e-2f);
  p = std::fma(p, w, 1.2079839e-1f);
  p = std::fma(p, w, 1.1962639e-1f);
  const float tail = e * (p * w);
  return {x < 0 ? tail : 1.0f - tail, 0.39894228f * e};
}
inline NormalLaw<double> normal_law(double x) {
  return {0.5 * std::erfc(-0.70710678118654752440 * x), 0.39894228040143267794 * std::exp(-0.5 * x * x)};
}

}  // namespace megatron::kernels
