#include "megatron/kernels/cuda/activation.h"

#include <cmath>
#include <type_traits>

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

struct Point {
  float value, derivative;
};

/// Four instructions: what is below the normal numbers vanishes beside 1, and what is beyond the largest gives 0.
__device__ float sigmoid(float x) {
  constexpr float kLog2E = 1.44269504f;
  float exponential, y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(exponential) : "f"(-kLog2E * x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1 + exponential));
  return y;
}

/// x * sigmoid(u(x)) where u' is known: SiLU, quick GELU, and GELU's tanh form, as 1 + tanh(u / 2) = 2 sigmoid(u).
__device__ Point gated_by_sigmoid(float x, float u, float du) {
  const float s = sigmoid(u);
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
    const float s = sigmoid(x);
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

template <class X>
struct Forward {
  X x, bias, y;
  Activation activation;

  __device__ RawPack fetch(int64_t row, int64_t begin, int n) const { return load_raw(x, row, begin, n); }
  __device__ void use(const RawPack& raw, int64_t row, int64_t begin, int n, float (*)[kPack]) const {
    const Pack in = biased(raw, bias, begin, n);
    Pack out;
    for_points(activation, in, [&](int e, const Point& p) { out.v[e] = p.value; });
    store(y, row, begin, n, out);
  }
};

template <class X>
struct Backward {
  static constexpr int kRowsAhead = kIsWhole<X> ? 2 : 1;
  X x, bias, dy, dx;
  Activation activation;

  struct Fetched {
    RawPack x, dy;
  };
  __device__ Fetched fetch(int64_t row, int64_t begin, int n) const {
    return {load_raw(x, row, begin, n), load_raw(dy, row, begin, n)};
  }
  __device__ void use(const Fetched& fetched, int64_t row, int64_t begin, int n, float (*sums)[kPack]) const {
    const Pack in = biased(fetched.x, bias, begin, n);
    Pack out = convert(fetched.dy);
    for_points(activation, in, [&](int e, const Point& p) { out.v[e] *= p.derivative; });
    if (sums) {
#pragma unroll
      for (int e = 0; e < kPack; ++e) sums[0][e] += out.v[e];
    }
    store(dx, row, begin, n, out);
  }
};

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

template <class X, bool kIsClamped>
struct GatedForward {
  using In = Gated<X, kIsClamped>;
  In in;
  X y;
  Activation activation;

  __device__ typename In::Fetched fetch(int64_t row, int64_t begin, int n) const { return in.fetch(row, begin, n); }
  __device__ void use(const typename In::Fetched& fetched, int64_t row, int64_t begin, int n, float (*)[kPack]) const {
    const Pack g = in.clamped_gates(biased(fetched.gate, in.gate_bias, begin, n));
    Pack out = biased(fetched.up, in.up_bias, begin, n);
    for_points(activation, g, [&](int e, const Point& p) { out.v[e] = p.value * in.factor(out.v[e]); });
    store(y, row, begin, n, out);
  }
};

template <class X, bool kIsClamped>
struct GatedBackward {
  static constexpr int kRowsAhead = kIsWhole<X> ? 2 : 1;
  using In = Gated<X, kIsClamped>;
  In in;
  X dy, dgate, dup;
  Activation activation;

  struct Fetched {
    typename In::Fetched in;
    RawPack dy;
  };
  __device__ Fetched fetch(int64_t row, int64_t begin, int n) const {
    return {in.fetch(row, begin, n), load_raw(dy, row, begin, n)};
  }
  __device__ void use(const Fetched& fetched, int64_t row, int64_t begin, int n, float (*sums)[kPack]) const {
    Pack g = biased(fetched.in.gate, in.gate_bias, begin, n), u = biased(fetched.in.up, in.up_bias, begin, n);
    const Pack gradient = convert(fetched.dy);
    for_points(activation, in.clamped_gates(g), [&](int e, const Point& p) {
      const float factor = in.factor(u.v[e]);
      u.v[e] = in.up_gradient(u.v[e], gradient.v[e] * p.value);
      g.v[e] = in.gate_gradient(g.v[e], gradient.v[e] * factor * p.derivative);
    });
    if (sums) {
#pragma unroll
      for (int e = 0; e < kPack; ++e) {
        sums[0][e] += g.v[e];
        sums[1][e] += u.v[e];
      }
    }
    store(dgate, row, begin, n, g);
    store(dup, row, begin, n, u);
  }
};

template <class X, bool kIsClamped, class Args>
Gated<X, kIsClamped> gated(const Args& args) {
  return {X(Operand(args.gate)),
          X(Operand(args.up)),
          X(Operand(args.gate_bias)),
          X(Operand(args.up_bias)),
          static_cast<float>(args.options.clamp),
          static_cast<float>(args.options.linear_offset)};
}

/// Calls run(constant), where the constant is whether there are clamps or an offset.
template <class Args, class Run>
void with_clamps(const Args& args, const Run& run) {
  if (std::isinf(args.options.clamp) && args.options.linear_offset == 0)
    run(std::false_type());
  else
    run(std::true_type());
}

/// Also computes the sums over rows into `outs`, if requested.
template <int kOutputs, class Args, class Body>
void run_backward(const CudaStream& stream, const char* kernel, const ConstView& x, const View* outs, const Args& args,
                  const Body& body) {
  if (outs[0].defined())
    sum_columns<kOutputs>(stream, kernel, Extent(x), args.workspace, outs, args.accumulate, body);
  else
    for_each_pack(stream, kernel, Extent(x), body);
}

}  // namespace

void activation_forward(const CudaStream& stream, const ActivationForwardArgs& args) {
  const Operand x(args.x), bias(args.bias), y(args.y);
  with_operand_type(args.x.shape[-1], {x, bias, y}, [&](auto type) {
    using X = decltype(type);
    for_each_pack(stream, "activation_forward", Extent(args.y), Forward<X>{X(x), X(bias), X(y), args.activation});
  });
}

void activation_backward(const CudaStream& stream, const ActivationBackwardArgs& args) {
  const Operand x(args.x), bias(args.bias), dy(args.dy), dx(args.dx);
  with_operand_type(args.x.shape[-1], {x, bias, dy, dx}, [&](auto type) {
    using X = decltype(type);
    run_backward<1>(stream, "activation_backward", args.x, &args.dbias, args,
                    Backward<X>{X(x), X(bias), X(dy), X(dx), args.activation});
  });
}

void gated_activation_forward(const CudaStream& stream, const GatedActivationForwardArgs& args) {
  const Operand y(args.y);
  with_operand_type(args.y.shape[-1],
                    {y, Operand(args.gate), Operand(args.up), Operand(args.gate_bias), Operand(args.up_bias)},
                    [&](auto type) {
                      using X = decltype(type);
                      with_clamps(args, [&](auto is_clamped) {
                        for_each_pack(stream, "gated_activation_forward", Extent(args.y),
                                      GatedForward<X, is_clamped>{gated<X, is_clamped>(args), X(y), args.activation});
                      });
                    });
}

void gated_activation_backward(const CudaStream& stream, const GatedActivationBackwardArgs& args) {
  const Operand dy(args.dy), dgate(args.dgate), dup(args.dup);
  const View outs[] = {args.dgate_bias, args.dup_bias};
  with_operand_type(
      args.dy.shape[-1],
      {dy, dgate, dup, Operand(args.gate), Operand(args.up), Operand(args.gate_bias), Operand(args.up_bias)},
      [&](auto type) {
        using X = decltype(type);
        with_clamps(args, [&](auto is_clamped) {
          run_backward<2>(
              stream, "gated_activation_backward", args.gate, outs, args,
              GatedBackward<X, is_clamped>{gated<X, is_clamped>(args), X(dy), X(dgate), X(dup), args.activation});
        });
      });
}

}  // namespace megatron::kernels
