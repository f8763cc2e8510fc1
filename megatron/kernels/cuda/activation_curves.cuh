// Values and derivatives of activation functions, and the operands of gated ones.
#pragma once

#include <cmath>
#include <type_traits>

#include "megatron/kernels/activation.h"
#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {

struct Point {
  float value, derivative;
};

/// Four instructions: what is below the normal numbers vanishes beside 1, and what is beyond the largest gives 0.
__device__ inline float sigmoid_of(float x) {
  constexpr float kLog2E = 1.44269504f;
  float exponential, y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(exponential) : "f"(-kLog2E * x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1 + exponential));
  return y;
}

/// x * sigmoid(u(x)) where u' is known: SiLU, quick GELU, and GELU's tanh form, as 1 + tanh(u / 2) = 2 sigmoid(u).
__device__ inline Point gated_by_sigmoid(float x, float u, float du) {
  const float s = sigmoid_of(u);
  return {x * s, s + x * s * (1 - s) * du};
}

/// The curve of an activation at x. Comparisons let NaN through.
template <Activation kActivation>
__device__ Point point(float x) {
  if constexpr (kActivation == Activation::kGelu) {
    const float distribution = 0.5f * erfcf(-0.70710678f * x);
    return {x * distribution, distribution + x * 0.39894228f * __expf(-0.5f * x * x)};
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    constexpr float kScale = 2 * 0.79788456f, kCubic = 0.044715f;  // 2 sqrt(2 / pi)
    return gated_by_sigmoid(x, kScale * x * (1 + kCubic * x * x), kScale * (1 + 3 * kCubic * x * x));
  } else if constexpr (kActivation == Activation::kQuickGelu) {
    return gated_by_sigmoid(x, 1.702f * x, 1.702f);
  } else if constexpr (kActivation == Activation::kSilu) {
    return gated_by_sigmoid(x, x, 1);
  } else if constexpr (kActivation == Activation::kSigmoid) {
    const float s = sigmoid_of(x);
    return {s, s * (1 - s)};
  } else if constexpr (kActivation == Activation::kRelu) {
    return {x < 0 ? 0 : x, x > 0 ? 1.0f : 0.0f};
  } else {
    const float positive = x < 0 ? 0 : x;
    return {positive * positive, 2 * positive};
  }
}

/// f(e, point) for the elements of a pack.
template <Activation kActivation, class F>
__device__ void for_points(const Pack& x, F f) {
#pragma unroll
  for (int e = 0; e < kPack; ++e) f(e, point<kActivation>(x.v[e]));
}
/// The activation is chosen once per pack.
template <class F>
__device__ void for_points(Activation activation, const Pack& x, F f) {
  switch (activation) {
    case Activation::kGelu:
      return for_points<Activation::kGelu>(x, f);
    case Activation::kGeluTanh:
      return for_points<Activation::kGeluTanh>(x, f);
    case Activation::kQuickGelu:
      return for_points<Activation::kQuickGelu>(x, f);
    case Activation::kSilu:
      return for_points<Activation::kSilu>(x, f);
    case Activation::kSigmoid:
      return for_points<Activation::kSigmoid>(x, f);
    case Activation::kRelu:
      return for_points<Activation::kRelu>(x, f);
    case Activation::kSquaredRelu:
      return for_points<Activation::kSquaredRelu>(x, f);
  }
}

/// x + bias, if there is one.
template <class X>
__device__ Pack biased(const RawPack& raw, const X& bias, int64_t begin, int n) {
  Pack x = convert(raw);
  if (!bias) return x;
  const Pack other = load(bias, 0, begin, n);
#pragma unroll
  for (int e = 0; e < kPack; ++e) x.v[e] += other.v[e];
  return x;
}

/// Gate and up with clamps and offset: factor is the clamped up with its offset. Most models have neither: they
/// skip the 40 comparisons of a pack.
template <class X, bool kIsClamped>
struct Gated {
  X gate, up, gate_bias, up_bias;
  float clamp, linear_offset;

  struct Fetched {
    RawPack gate, up;
  };
  __device__ Fetched fetch(int64_t row, int64_t begin, int n) const {
    return {load_raw(gate, row, begin, n), load_raw(up, row, begin, n)};
  }
  __device__ float clamped_gate(float g) const { return kIsClamped && g > clamp ? clamp : g; }
  __device__ float factor(float u) const {
    if constexpr (!kIsClamped) return u;
    return (u > clamp ? clamp : u < -clamp ? -clamp : u) + linear_offset;
  }
  /// The part of a gradient that passes the clamps.
  __device__ float gate_gradient(float g, float dg) const { return kIsClamped && g > clamp ? 0 : dg; }
  __device__ float up_gradient(float u, float du) const { return kIsClamped && (u > clamp || u < -clamp) ? 0 : du; }
  __device__ Pack clamped_gates(Pack g) const {
#pragma unroll
    for (int e = 0; e < kPack; ++e) g.v[e] = clamped_gate(g.v[e]);
    return g;
  }
};

/// Calls run(constant), where the constant is whether there are clamps or an offset.
template <class Args, class Run>
void with_clamps(const Args& args, const Run& run) {
  if (std::isinf(args.options.clamp) && args.options.linear_offset == 0)
    run(std::false_type());
  else
    run(std::true_type());
}

}  // namespace megatron::kernels
