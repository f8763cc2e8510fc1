#include "megatron/kernels/activation.h"

#include "megatron/kernels/cuda/activation_curves.cuh"

namespace megatron::kernels {
namespace {

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
