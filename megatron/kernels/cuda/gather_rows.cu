#include "megatron/kernels/gather_rows.h"

#include "megatron/kernels/cuda/reduce.cuh"
#include "megatron/kernels/cuda/row_gather.cuh"
#include "megatron/kernels/cuda/row_scatter.cuh"
#include "megatron/kernels/elementwise.h"

namespace megatron::kernels {
namespace {

template <class X>
struct Gather {
  X y;
  Indices index;
  Scalars weights;

  __device__ int64_t source(int64_t row) const { return index[row]; }
  __device__ void finish(int64_t row, int64_t begin, int n, bool has_source, Pack out) const {
    if (weights && has_source) {
      const float weight = static_cast<float>(weights[row]);
#pragma unroll
      for (int e = 0; e < kPack; ++e) out.v[e] *= weight;
    }
    store(y, row, begin, n, out);
  }
};

struct Combine {
  Operand x, y;
  Indices slots;
  Scalars weights;
  int64_t k;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    Pack out = {};
    for (int64_t choice = row * k; choice < (row + 1) * k; ++choice) {
      const int64_t slot = slots[choice];
      if (slot < 0) continue;
      const Pack in = load(x, slot, begin, n);
      const float weight = weights ? static_cast<float>(weights[choice]) : 1;
#pragma unroll
      for (int e = 0; e < kPack; ++e) out.v[e] += weight * in.v[e];
    }
    store(y, row, begin, n, out);
  }
};

struct CombineBackward {
  Operand x, dy, dx, dweights;
  Indices slots;
  Scalars weights;
  int64_t k;
};

/// A row of threads for each choice of each token.
__global__ void __launch_bounds__(kMaxRowThreads) combine_backward_kernel(CombineBackward args, Extent extent) {
  const int64_t choice = row_of_block(), token = choice / args.k;
  const int64_t slot = token < extent.true_rows() ? args.slots[choice] : -1;
  const float weight = slot < 0 ? 0 : static_cast<float>(args.weights[choice]);
  float dot = 0;
  for (int64_t begin = threadIdx.x * kPack; slot >= 0 && begin < extent.columns; begin += blockDim.x * kPack) {
    const int n = pack_size(extent.columns, begin);
    const RawPack x_raw = load_raw(args.x, slot, begin, n), dy_raw = load_raw(args.dy, token, begin, n);
    const Pack in = convert(x_raw);
    Pack out = convert(dy_raw);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      dot += out.v[e] * in.v[e];
      out.v[e] *= weight;
    }
    store(args.dx, slot, begin, n, out);
  }
  dot = reduce_row(dot, Plus());
  if (threadIdx.x == 0 && token < extent.true_rows())
    store_scalar(args.dweights.data, args.dweights.dtype, args.dweights.at(token, choice % args.k), dot);
}

__global__ void check_capacity_kernel(const int32_t* count, int64_t capacity, StepState* state) {
  if (*count > capacity) state->overflow = 1;
}

/// Raises the flag if the true number of rows is above the capacity.
void check_capacity(const CudaStream& stream, const ConstView& bounded, StepState* state) {
  if (!bounded.count) return;
  check_capacity_kernel<<<1, 1, 0, stream.stream>>>(bounded.count, bounded.shape[0], state);
  check_launch("check_capacity");
}

struct Targets {
  Indices index;
  __device__ int64_t operator()(int64_t row) const { return index[row]; }
};

}  // namespace

void gather_rows(const CudaStream& stream, const GatherRowsArgs& args) {
  check_capacity(stream, args.y, args.state);
  const Operand x(args.x), y(args.y);
  with_operand_type(args.y.shape[-1], {x, y}, [&](auto type) {
    using X = decltype(type);
    gather(stream, "gather_rows", Extent(args.y), X(x), Gather<X>{X(y), Indices(args.index), Scalars(args.weights)});
  });
}

void scatter_add_rows(const CudaStream& stream, const ScatterAddRowsArgs& args) {
  check_capacity(stream, args.x, args.state);
  if (!args.accumulate) fill(stream, {.y = args.y});
  const Extent extent(args.x);
  if (extent.is_empty()) return;
  scatter_rows(stream, "scatter_add_rows", extent, Targets{Indices(args.index)}, args.x, args.y, args.accumulate,
               args.workspace);
}

void combine_rows_forward(const CudaStream& stream, const CombineRowsForwardArgs& args) {
  for_each_pack(
      stream, "combine_rows_forward", Extent(args.y),
      Combine{Operand(args.x), Operand(args.y), Indices(args.slots), Scalars(args.weights), args.slots.shape[1]});
}

void combine_rows_backward(const CudaStream& stream, const CombineRowsBackwardArgs& args) {
  fill(stream, {.y = args.dx});
  const Extent extent(args.dy);
  const int64_t k = args.slots.shape[1];
  if (extent.is_empty() || k == 0) return;
  const RowBlock block(extent.columns);
  combine_backward_kernel<<<block.blocks(extent.rows * k), block.threads(), 0, stream.stream>>>(
      {Operand(args.x), Operand(args.dy), Operand(args.dx), Operand(args.dweights), Indices(args.slots),
       Scalars(args.weights), k},
      extent);
  check_launch("combine_rows_backward");
}

}  // namespace megatron::kernels
