#include "megatron/kernels/dropout.h"

#include "megatron/kernels/column_sum.h"
#include "megatron/kernels/cuda/launch.cuh"
#include "megatron/kernels/cuda/random.cuh"

namespace megatron::kernels {
namespace {

/// DropoutMask with values precomputed on the host.
struct Mask {
  uint32_t threshold;
  float kept;
  bool is_drawn;
  uint64_t key;
  const StepState* state;
  RowMap rows;
  int64_t first_feature;

  explicit Mask(const DropoutMask& mask)
      : threshold(dropout_threshold(mask.rate)),
        kept(static_cast<float>(1 / (1 - mask.rate))),
        is_drawn(mask.rate != 0),
        key(mask.key.value),
        state(mask.state),
        rows(mask.rows),
        first_feature(mask.first_feature) {}

  /// Bit e is set if element begin + e of the row is kept. Computed while the loads of the elements are in flight.
  __device__ uint32_t draw(int64_t row, int64_t begin) const {
    if (!is_drawn) return ~0u;
    const int64_t step = state->step, global = global_row(rows, row), feature = first_feature + begin;
    const int skip = static_cast<int>(feature % 4);
    const Draws first = draw_four(key, step, global, feature / 4),
                second = draw_four(key, step, global, feature / 4 + 1);
    Draws third = {};
    if (skip != 0) third = draw_four(key, step, global, feature / 4 + 2);
    const uint32_t w[] = {first.w[0],  first.w[1],  first.w[2], first.w[3], second.w[0], second.w[1],
                          second.w[2], second.w[3], third.w[0], third.w[1], third.w[2]};
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kPack + 3; ++i) bits |= w[i] < threshold ? 0 : 1u << i;
    return bits >> skip;
  }
  /// Multiplies the elements by 0 or 1 / (1 - rate).
  __device__ void apply(uint32_t bits, Pack& x) const {
    if (!is_drawn) return;
#pragma unroll
    for (int e = 0; e < kPack; ++e) x.v[e] *= (bits >> e & 1) != 0 ? kept : 0;
  }
};

template <class X>
struct Forward {
  X x, bias, residual, y;
  Mask mask;

  struct Fetched {
    RawPack x, residual;
  };
  __device__ Fetched fetch(int64_t row, int64_t begin, int n) const {
    return {load_raw(x, row, begin, n), residual ? load_raw(residual, row, begin, n) : RawPack{}};
  }
  __device__ void use(const Fetched& fetched, int64_t row, int64_t begin, int n, float (*)[kPack]) const {
    const uint32_t bits = mask.draw(row, begin);
    Pack out = convert(fetched.x);
    if (bias) {
      const Pack other = load(bias, 0, begin, n);
#pragma unroll
      for (int e = 0; e < kPack; ++e) out.v[e] += other.v[e];
    }
    mask.apply(bits, out);
    if (residual) {
      const Pack other = convert(fetched.residual);
#pragma unroll
      for (int e = 0; e < kPack; ++e) out.v[e] += other.v[e];
    }
    store(y, row, begin, n, out);
  }
};

template <class X>
struct Backward {
  static constexpr int kRowsAhead = kIsWhole<X> ? 2 : 1;
  X dy, dx;
  Mask mask;

  __device__ RawPack fetch(int64_t row, int64_t begin, int n) const { return load_raw(dy, row, begin, n); }
  __device__ void use(const RawPack& raw, int64_t row, int64_t begin, int n, float (*sums)[kPack]) const {
    const uint32_t bits = mask.draw(row, begin);
    Pack out = convert(raw);
    mask.apply(bits, out);
    if (sums) {
#pragma unroll
      for (int e = 0; e < kPack; ++e) sums[0][e] += out.v[e];
    }
    if (dx) store(dx, row, begin, n, out);
  }
};

}  // namespace

void bias_dropout_add_forward(const CudaStream& stream, const BiasDropoutAddForwardArgs& args) {
  const Operand x(args.x), bias(args.bias), residual(args.residual), y(args.y);
  with_operand_type(args.x.shape[-1], {x, bias, residual, y}, [&](auto type) {
    using X = decltype(type);
    for_each_pack(stream, "bias_dropout_add_forward", Extent(args.x),
                  Forward<X>{X(x), X(bias), X(residual), X(y), Mask(args.dropout)});
  });
}

void bias_dropout_add_backward(const CudaStream& stream, const BiasDropoutAddBackwardArgs& args) {
  if (!args.dx.defined() && args.dbias.defined() && args.dropout.rate == 0)
    return column_sum(stream,
                      {.x = args.dy, .out = args.dbias, .accumulate = args.accumulate, .workspace = args.workspace});
  const Operand dy(args.dy), dx(args.dx);
  with_operand_type(args.dy.shape[-1], {dy, dx}, [&](auto type) {
    using X = decltype(type);
    const Backward<X> body{X(dy), X(dx), Mask(args.dropout)};
    if (args.dbias.defined())
      sum_columns<1>(stream, "bias_dropout_add_backward", Extent(args.dy), args.workspace, &args.dbias, args.accumulate,
                     body);
    else
      for_each_pack(stream, "bias_dropout_add_backward", Extent(args.dy), body);
  });
}

}  // namespace megatron::kernels
