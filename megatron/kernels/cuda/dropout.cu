#include "megatron/kernels/cuda/dropout.h"

#include "megatron/kernels/cuda/launch.cuh"
#include "megatron/kernels/cuda/random.cuh"

namespace megatron::kernels {
namespace {

/// DropoutMask with what the host can work out.
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

  /// Multiplies a pack of the row from `begin` by 0 or 1 / (1 - rate).
  __device__ void apply(int64_t row, int64_t begin, Pack& x) const {
    if (!is_drawn) return;
    const int64_t step = state->step, global = global_row(rows, row), feature = first_feature + begin;
    const int skip = static_cast<int>(feature % 4);
    const Draws first = draw_four(key, step, global, feature / 4),
                second = draw_four(key, step, global, feature / 4 + 1);
    Draws third = {};
    if (skip != 0) third = draw_four(key, step, global, feature / 4 + 2);
    const uint32_t w[] = {first.w[0],  first.w[1],  first.w[2], first.w[3], second.w[0], second.w[1],
                          second.w[2], second.w[3], third.w[0], third.w[1], third.w[2]};
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      const uint32_t draw = skip == 0 ? w[e] : skip == 1 ? w[e + 1] : skip == 2 ? w[e + 2] : w[e + 3];
      x.v[e] *= draw < threshold ? 0 : kept;
    }
  }
};

struct Forward {
  Operand x, bias, residual, y;
  Mask mask;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    const RawPack x_raw = load_raw(x, row, begin, n);
    RawPack residual_raw;
    if (residual) residual_raw = load_raw(residual, row, begin, n);
    Pack out = convert(x_raw);
    if (bias) {
      const Pack other = load(bias, 0, begin, n);
#pragma unroll
      for (int e = 0; e < kPack; ++e) out.v[e] += other.v[e];
    }
    mask.apply(row, begin, out);
    if (residual) {
      const Pack other = convert(residual_raw);
#pragma unroll
      for (int e = 0; e < kPack; ++e) out.v[e] += other.v[e];
    }
    store(y, row, begin, n, out);
  }
};

struct Backward {
  static constexpr int kRowsAhead = 1;
  Operand dy, dx;
  Mask mask;

  __device__ RawPack fetch(int64_t row, int64_t begin, int n) const { return load_raw(dy, row, begin, n); }
  __device__ void use(const RawPack& raw, int64_t row, int64_t begin, int n, float (*sums)[kPack]) const {
    Pack out = convert(raw);
    mask.apply(row, begin, out);
    if (sums) {
#pragma unroll
      for (int e = 0; e < kPack; ++e) sums[0][e] += out.v[e];
    }
    store(dx, row, begin, n, out);
  }
  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    use(fetch(row, begin, n), row, begin, n, nullptr);
  }
};

}  // namespace

void bias_dropout_add_forward(const CudaStream& stream, const BiasDropoutAddForwardArgs& args) {
  for_each_pack(
      stream, "bias_dropout_add_forward", Extent(args.x),
      Forward{Operand(args.x), Operand(args.bias), Operand(args.residual), Operand(args.y), Mask(args.dropout)});
}

void bias_dropout_add_backward(const CudaStream& stream, const BiasDropoutAddBackwardArgs& args) {
  const Backward body{Operand(args.dy), Operand(args.dx), Mask(args.dropout)};
  if (args.dbias.defined())
    sum_columns<1>(stream, "bias_dropout_add_backward", Extent(args.dy), args.workspace, &args.dbias, args.accumulate,
                   body);
  else
    for_each_pack(stream, "bias_dropout_add_backward", Extent(args.dy), body);
}

}  // namespace megatron::kernels
