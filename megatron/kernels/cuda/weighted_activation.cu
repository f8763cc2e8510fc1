#include "megatron/kernels/weighted_activation.h"

#include "megatron/kernels/cuda/activation_curves.cuh"
#include "megatron/kernels/cuda/reduce.cuh"

namespace megatron::kernels {
namespace {

/// Rows of a plain activation.
template <class X>
struct PlainRows {
  X x, dx;
  Activation activation;

  using Fetched = RawPack;
  __device__ Fetched fetch(int64_t row, int64_t begin, int n) const { return load_raw(x, row, begin, n); }
  __device__ Pack values(const Fetched& fetched) const {
    Pack out;
    for_points(activation, convert(fetched), [&](int e, const Point& p) { out.v[e] = p.value; });
    return out;
  }
  /// Stores dx for the gradient dy of values(), and returns the values.
  __device__ Pack differentiate(const Fetched& fetched, Pack dy, int64_t row, int64_t begin, int n) const {
    Pack out;
    for_points(activation, convert(fetched), [&](int e, const Point& p) {
      out.v[e] = p.value;
      dy.v[e] *= p.derivative;
    });
    if (dx) store(dx, row, begin, n, dy);
    return out;
  }
};

/// Rows [gate | up].
template <class X, bool kIsClamped>
struct GatedRows {
  using In = Gated<X, kIsClamped>;
  In in;
  X dgate, dup;
  Activation activation;

  using Fetched = typename In::Fetched;
  __device__ Fetched fetch(int64_t row, int64_t begin, int n) const { return in.fetch(row, begin, n); }
  __device__ Pack values(const Fetched& fetched) const {
    Pack out = convert(fetched.up);
    for_points(activation, in.clamped_gates(convert(fetched.gate)),
               [&](int e, const Point& p) { out.v[e] = p.value * in.factor(out.v[e]); });
    return out;
  }
  __device__ Pack differentiate(const Fetched& fetched, const Pack& dy, int64_t row, int64_t begin, int n) const {
    Pack g = convert(fetched.gate), u = convert(fetched.up), out;
    for_points(activation, in.clamped_gates(g), [&](int e, const Point& p) {
      const float factor = in.factor(u.v[e]);
      out.v[e] = p.value * factor;
      u.v[e] = in.up_gradient(u.v[e], dy.v[e] * p.value);
      g.v[e] = in.gate_gradient(g.v[e], dy.v[e] * factor * p.derivative);
    });
    if (dgate) {
      store(dgate, row, begin, n, g);
      store(dup, row, begin, n, u);
    }
    return out;
  }
};

/// A number for each row: fp32, bf16 or fp16, at one distance from each other. Operands of any number of dimensions
/// would be copied to local memory by every thread of these kernels, which cost a third of their bandwidth.
struct RowScalars {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t stride = 1;

  explicit RowScalars(const ConstView& view)
      : data(const_cast<void*>(view.data)), dtype(view.dtype), stride(view.shape.rank() > 0 ? view.strides[0] : 1) {
    require<ShapeError>(view.shape.rank() == 1 || !data, "[weighted_activation] weights have shape {}, not [rows].",
                        view.shape);
    require<DtypeError>(dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16,
                        "[weighted_activation] {} weights: choose float32, bfloat16 or float16.", dtype);
  }
  __device__ float at(int64_t row) const { return load_scalar(data, dtype, row * stride); }
  __device__ void set(int64_t row, float value) const { store_scalar(data, dtype, row * stride, value); }
};

template <class Rows, class X>
struct WeightedForward {
  Rows rows;
  X y;
  RowScalars weights;

  __device__ typename Rows::Fetched fetch(int64_t row, int64_t begin, int n) const { return rows.fetch(row, begin, n); }
  __device__ void use(const typename Rows::Fetched& fetched, int64_t row, int64_t begin, int n,
                      float (*)[kPack]) const {
    const float weight = weights.at(row);
    Pack out = rows.values(fetched);
#pragma unroll
    for (int e = 0; e < kPack; ++e) out.v[e] *= weight;
    store(y, row, begin, n, out);
  }
};

/// Packs of a thread of a row in backward, and the rows from which on a warp has a row of its own: then rows need not
/// wait for each other.
constexpr int kBackwardPacks = 4, kManyRows = 2048;

/// The next pack is loaded before this one is used.
template <class Rows, class X>
__global__ void __launch_bounds__(kBlockThreads, 3)
    weighted_backward_kernel(Rows rows, X dy, RowScalars weights, RowScalars dweights, Extent extent) {
  struct Loaded {
    typename Rows::Fetched in;
    RawPack dy;
  };
  const int64_t row = row_of_block(), stride = static_cast<int64_t>(blockDim.x) * kPack;
  const bool is_true = row < extent.true_rows();
  const float weight = is_true ? weights.at(row) : 0;
  const int64_t columns = is_true ? extent.columns : 0;
  const auto load_at = [&](int64_t begin) {
    const int n = pack_size(columns, begin);
    return Loaded{rows.fetch(row, begin, n), load_raw(dy, row, begin, n)};
  };
  float dot = 0;
  Loaded next{};
  int64_t next_begin = static_cast<int64_t>(threadIdx.x) * kPack;
  if (next_begin < columns) next = load_at(next_begin);
#pragma unroll 1
  while (next_begin < columns) {
    const Loaded loaded = next;
    const int64_t begin = next_begin;
    next_begin += stride;
    if (next_begin < columns) next = load_at(next_begin);
    const int n = pack_size(columns, begin);
    const Pack gradient = convert(loaded.dy);
    Pack weighted;
#pragma unroll
    for (int e = 0; e < kPack; ++e) weighted.v[e] = weight * gradient.v[e];
    const Pack out = rows.differentiate(loaded.in, weighted, row, begin, n);
#pragma unroll
    for (int e = 0; e < kPack; ++e) dot += e < n ? gradient.v[e] * out.v[e] : 0;
  }
  dot = reduce_row(dot, Plus());
  if (threadIdx.x == 0 && dweights.data && row < extent.rows) dweights.set(row, dot);
}

/// Calls run(rows) with the rows of the activation. @param dx  undefined in forward
template <class X, class Args, class Run>
void with_rows(const Args& args, const View& dx, const Run& run) {
  if (!args.is_gated) return run(PlainRows<X>{X(Operand(args.x)), X(Operand(dx)), args.activation});
  with_clamps(args, [&](auto is_clamped) {
    const Gated<X, is_clamped> in{
        X(Operand(half_of_rows(args.x, 0))),    X(Operand(half_of_rows(args.x, 1))),           X(), X(),
        static_cast<float>(args.options.clamp), static_cast<float>(args.options.linear_offset)};
    run(GatedRows<X, is_clamped>{in, X(Operand(half_of_rows(dx, 0))), X(Operand(half_of_rows(dx, 1))),
                                 args.activation});
  });
}

/// Calls run(X()) with the operand type that fits; the halves of gated rows are operands of their own.
template <class Run>
void with_type(const ConstView& x, const ConstView& y, const View& dx, bool is_gated, const Run& run) {
  const auto part = [&](const auto& view, int index) {
    return Operand(is_gated ? half_of_rows(ConstView(view), index) : ConstView(view));
  };
  with_operand_type(y.shape[-1], {Operand(y), part(x, 0), part(x, 1), part(dx, 0), part(dx, 1)}, run);
}

}  // namespace

void weighted_activation_forward(const CudaStream& stream, const WeightedActivationForwardArgs& args) {
  with_type(args.x, args.y, {}, args.is_gated, [&](auto type) {
    using X = decltype(type);
    with_rows<X>(args, {}, [&](const auto& rows) {
      using Rows = std::decay_t<decltype(rows)>;
      for_each_pack(stream, "weighted_activation_forward", Extent(args.y),
                    WeightedForward<Rows, X>{rows, X(Operand(args.y)), RowScalars(args.weights)});
    });
  });
}

void weighted_activation_backward(const CudaStream& stream, const WeightedActivationBackwardArgs& args) {
  const Extent extent(args.dy);
  if (extent.is_empty()) return;
  RowBlock block(extent.columns, kBackwardPacks, kBlockThreads);
  if (extent.rows >= kManyRows) block.x = kWarp;
  if (block.x == kWarp) block.y = kBlockThreads / kWarp;
  with_type(args.x, args.dy, args.dx, args.is_gated, [&](auto type) {
    using X = decltype(type);
    with_rows<X>(args, args.dx, [&](const auto& rows) {
      weighted_backward_kernel<<<block.blocks(extent.rows), block.threads(), 0, stream.stream>>>(
          rows, X(Operand(args.dy)), RowScalars(args.weights), RowScalars(args.dweights), extent);
      check_launch("weighted_activation_backward");
    });
  });
}

}  // namespace megatron::kernels
