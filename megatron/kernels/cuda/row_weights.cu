#include "megatron/kernels/row_weights.h"

#include "megatron/kernels/cuda/reduce.cuh"

namespace megatron::kernels {
namespace {

struct ScaleRows {
  Operand x, y;
  Scalars weights;
  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    const float weight = static_cast<float>(weights[row]);
    Pack pack = load(x, row, begin, n);
#pragma unroll
    for (int e = 0; e < kPack; ++e) pack.v[e] *= weight;
    store(y, row, begin, n, pack);
  }
};

struct AddGroupedBias {
  Operand x, bias, y;
  Scalars weights;
  RowGroupsView groups;
  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    const int64_t group = groups.group_of(row);
    if (group == groups.num_groups) return;
    const float weight = weights ? static_cast<float>(weights[row]) : 1;
    Pack pack = load(x, row, begin, n);
    const Pack shift = load(bias, group, begin, n);
#pragma unroll
    for (int e = 0; e < kPack; ++e) pack.v[e] += weight * shift.v[e];
    store(y, row, begin, n, pack);
  }
};

struct SameRow {
  __device__ int64_t operator()(int64_t row) const { return row; }
};
struct RowOfGroup {
  RowGroupsView groups;
  __device__ int64_t operator()(int64_t row) const {
    const int64_t group = groups.group_of(row);
    return group == groups.num_groups ? -1 : group;
  }
};

/// dots[r] = a[r] . b[row_of_b(r)], 0 where that is negative and past the true number of rows.
template <class RowOfB>
__global__ void __launch_bounds__(kMaxRowThreads)
    dot_rows_kernel(Operand a, Operand b, Operand dots, RowOfB row_of_b, Extent extent) {
  const int64_t row = row_of_block(), other = row < extent.true_rows() ? row_of_b(row) : -1;
  float dot = 0;
#pragma unroll 4
  for (int64_t begin = threadIdx.x * kPack; other >= 0 && begin < extent.columns; begin += blockDim.x * kPack) {
    const int n = pack_size(extent.columns, begin);
    const Pack x = load(a, row, begin, n), y = load(b, other, begin, n);
#pragma unroll
    for (int e = 0; e < kPack; ++e) dot += x.v[e] * y.v[e];
  }
  dot = reduce_row(dot, Plus());
  if (threadIdx.x == 0 && row < extent.rows) store_scalar(dots.data, dots.dtype, dots.at(0, row), dot);
}
template <class RowOfB>
void dot_rows(const CudaStream& stream, const char* name, const ConstView& a, const ConstView& b, const View& dots,
              const RowOfB& row_of_b) {
  const Extent extent(a);
  if (extent.rows == 0) return;
  const RowBlock block(kPack);  // a warp for each row: rows are many, and none waits for another
  dot_rows_kernel<<<block.blocks(extent.rows), block.threads(), 0, stream.stream>>>(Operand(a), Operand(b),
                                                                                    Operand(dots), row_of_b, extent);
  check_launch(name);
}

/// A thread for each column of a group adds its rows in order.
__global__ void __launch_bounds__(kBlockThreads) sum_groups_kernel(Operand dy, Scalars weights, RowGroupsView groups,
                                                                   Operand dbias, int64_t columns, bool accumulate) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x, group = blockIdx.y;
  if (column >= columns) return;
  float sum = accumulate ? load_scalar(dbias.data, dbias.dtype, dbias.at(group, column)) : 0;
  for (int64_t row = groups.begin(group); row < groups.end(group); ++row) {
    const float weight = weights ? static_cast<float>(weights[row]) : 1;
    sum += weight * load_scalar(dy.data, dy.dtype, dy.at(row, column));
  }
  store_scalar(dbias.data, dbias.dtype, dbias.at(group, column), sum);
}

}  // namespace

void scale_rows(const CudaStream& stream, const ScaleRowsArgs& args) {
  for_each_pack(stream, "scale_rows", Extent(args.y),
                ScaleRows{Operand(args.x), Operand(args.y), Scalars(args.weights)});
}

void row_dots(const CudaStream& stream, const RowDotsArgs& args) {
  dot_rows(stream, "row_dots", args.a, args.b, args.dots, SameRow{});
}

void grouped_bias_forward(const CudaStream& stream, const GroupedBiasForwardArgs& args) {
  for_each_pack(
      stream, "grouped_bias_forward", Extent(args.y),
      AddGroupedBias{Operand(args.x), Operand(args.bias), Operand(args.y), Scalars(args.weights), args.groups});
}

void grouped_bias_backward(const CudaStream& stream, const GroupedBiasBackwardArgs& args) {
  const int64_t columns = args.dy.shape[-1];
  if (columns == 0 || args.groups.num_groups == 0) return;
  const dim3 grid(static_cast<unsigned>((columns + kBlockThreads - 1) / kBlockThreads),
                  static_cast<unsigned>(args.groups.num_groups));
  sum_groups_kernel<<<grid, kBlockThreads, 0, stream.stream>>>(Operand(args.dy), Scalars(args.weights), args.groups,
                                                               Operand(args.dbias), columns, args.accumulate);
  check_launch("grouped_bias_backward");
}

void grouped_bias_dots(const CudaStream& stream, const GroupedBiasDotsArgs& args) {
  dot_rows(stream, "grouped_bias_dots", args.dy, args.bias, args.dots, RowOfGroup{args.groups});
}

}  // namespace megatron::kernels
