#include "megatron/kernels/cuda/activation.h"

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

struct Point {
  float value, derivative;
};

__device__ float sigmoid(float x) { return 1 / (1 + __expf(-x)); }

/// x * sigmoid(u(x)) where u' is known: SiLU, quick GELU, and GELU's tanh form, as 1 + tanh(u / 2) = 2 sigmoid(u).
__device__ Point gated_by_sigmoid(float x, float u, float du) {
  const float s = sigmoid(u);
  return {x * s, s + x * s * (1 - s) * du};
}

/// The curve of an activation at x. Comparisons let NaN through.
__device__ Point point(Activation activation, float x) {
  switch (activation) {
    case Activation::kGelu: {
      const float distribution = 0.5f * erfcf(-0.70710678f * x);
      return {x * distribution, distribution + x * 0.39894228f * expf(-0.5f * x * x)};
    }
    case Activation::kGeluTanh: {
      constexpr float kScale = 2 * 0.79788456f, kCubic = 0.044715f;  // 2 sqrt(2 / pi)
      return gated_by_sigmoid(x, kScale * x * (1 + kCubic * x * x), kScale * (1 + 3 * kCubic * x * x));
    }
    case Activation::kQuickGelu:
      return gated_by_sigmoid(x, 1.702f * x, 1.702f);
    case Activation::kSilu:
      return gated_by_sigmoid(x, x, 1);
    case Activation::kSigmoid: {
      const float s = sigmoid(x);
      return {s, s * (1 - s)};
    }
    case Activation::kRelu:
      return {x < 0 ? 0 : x, x > 0 ? 1.0f : 0.0f};
    default: {
      const float positive = x < 0 ? 0 : x;
      return {positive * positive, 2 * positive};
    }
  }
}

/// x + bias, where there is one.
__device__ Pack biased(const RawPack& raw, const Operand& bias, int64_t begin, int n) {
  Pack x = convert(raw);
  if (!bias) return x;
  const Pack other = load(bias, 0, begin, n);
#pragma unroll
  for (int e = 0; e < kPack; ++e) x.v[e] += other.v[e];
  return x;
}

struct Forward {
  Operand x, bias, y;
  Activation activation;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    Pack pack = biased(load_raw(x, row, begin, n), bias, begin, n);
#pragma unroll
    for (int e = 0; e < kPack; ++e) pack.v[e] = point(activation, pack.v[e]).value;
    store(y, row, begin, n, pack);
  }
};

struct Backward {
  Operand x, bias, dy, dx;
  Activation activation;

  __device__ void operator()(int64_t row, int64_t begin, int n, float (*sums)[kPack]) const {
    const RawPack x_raw = load_raw(x, row, begin, n), dy_raw = load_raw(dy, row, begin, n);
    const Pack in = biased(x_raw, bias, begin, n);
    Pack out = convert(dy_raw);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      out.v[e] *= point(activation, in.v[e]).derivative;
      if (sums) sums[0][e] += out.v[e];
    }
    store(dx, row, begin, n, out);
  }
  __device__ void operator()(int64_t row, int64_t begin, int n) const { (*this)(row, begin, n, nullptr); }
};

/// Gate and up as the activation sees them: factor is the clamped up with its offset.
struct Gated {
  Operand gate, up, gate_bias, up_bias;
  float clamp, linear_offset;

  __device__ void load_biased(int64_t row, int64_t begin, int n, Pack& g, Pack& u) const {
    const RawPack gate_raw = load_raw(gate, row, begin, n), up_raw = load_raw(up, row, begin, n);
    g = biased(gate_raw, gate_bias, begin, n);
    u = biased(up_raw, up_bias, begin, n);
  }
  __device__ float clamped_gate(float g) const { return g > clamp ? clamp : g; }
  __device__ float factor(float u) const { return (u > clamp ? clamp : u < -clamp ? -clamp : u) + linear_offset; }
};

struct GatedForward {
  Gated in;
  Operand y;
  Activation activation;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    Pack g, u;
    in.load_biased(row, begin, n, g, u);
#pragma unroll
    for (int e = 0; e < kPack; ++e) g.v[e] = point(activation, in.clamped_gate(g.v[e])).value * in.factor(u.v[e]);
    store(y, row, begin, n, g);
  }
};

struct GatedBackward {
  Gated in;
  Operand dy, dgate, dup;
  Activation activation;

  __device__ void operator()(int64_t row, int64_t begin, int n, float (*sums)[kPack]) const {
    const RawPack dy_raw = load_raw(dy, row, begin, n);
    Pack g, u;
    in.load_biased(row, begin, n, g, u);
    const Pack gradient = convert(dy_raw);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      const Point p = point(activation, in.clamped_gate(g.v[e]));
      const bool is_outside = u.v[e] > in.clamp || u.v[e] < -in.clamp;
      const float factor = in.factor(u.v[e]);
      u.v[e] = is_outside ? 0 : gradient.v[e] * p.value;
      g.v[e] = g.v[e] > in.clamp ? 0 : gradient.v[e] * factor * p.derivative;
      if (!sums) continue;
      sums[0][e] += g.v[e];
      sums[1][e] += u.v[e];
    }
    store(dgate, row, begin, n, g);
    store(dup, row, begin, n, u);
  }
  __device__ void operator()(int64_t row, int64_t begin, int n) const { (*this)(row, begin, n, nullptr); }
};

template <class Args>
Gated gated(const Args& args) {
  return {Operand(args.gate),
          Operand(args.up),
          Operand(args.gate_bias),
          Operand(args.up_bias),
          static_cast<float>(args.options.clamp),
          static_cast<float>(args.options.linear_offset)};
}

}  // namespace

void activation_forward(const CudaStream& stream, const ActivationForwardArgs& args) {
  for_each_pack(stream, "activation_forward", Extent(args.y),
                Forward{Operand(args.x), Operand(args.bias), Operand(args.y), args.activation});
}

void activation_backward(const CudaStream& stream, const ActivationBackwardArgs& args) {
  const Backward body{Operand(args.x), Operand(args.bias), Operand(args.dy), Operand(args.dx), args.activation};
  if (args.dbias.defined())
    sum_columns<1>(stream, "activation_backward", Extent(args.x), args.workspace, &args.dbias, args.accumulate, body);
  else
    for_each_pack(stream, "activation_backward", Extent(args.x), body);
}

void gated_activation_forward(const CudaStream& stream, const GatedActivationForwardArgs& args) {
  for_each_pack(stream, "gated_activation_forward", Extent(args.y),
                GatedForward{gated(args), Operand(args.y), args.activation});
}

void gated_activation_backward(const CudaStream& stream, const GatedActivationBackwardArgs& args) {
  const GatedBackward body{gated(args), Operand(args.dy), Operand(args.dgate), Operand(args.dup), args.activation};
  const View outs[] = {args.dgate_bias, args.dup_bias};
  if (args.dgate_bias.defined())
    sum_columns<2>(stream, "gated_activation_backward", Extent(args.gate), args.workspace, outs, args.accumulate, body);
  else
    for_each_pack(stream, "gated_activation_backward", Extent(args.gate), body);
}

}  // namespace megatron::kernels
