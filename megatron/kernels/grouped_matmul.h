// Matrix products of groups of rows, each with a matrix of its own: the linear layers of experts. The offsets of the
// groups are read where the product is computed, so that the host does not wait for them. Groups may be empty.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/row_groups_view.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// c[r] = a[r] op(b[g]) for the rows r of group g; op transposes if asked. Other rows of c are not written.
/// Row-major and contiguous; one floating dtype. Products and sums in fp32, fp64 for fp64.
struct GroupedMatmulArgs {
  ConstView a;  // [m, k]
  ConstView b;  // [groups, k, n]; [groups, n, k] if transpose_b
  View c;       // [m, n]
  RowGroupsView groups;
  bool transpose_b = false;
  View workspace;  // uint8 [grouped_matmul_workspace_bytes(stream, args)]
};
void grouped_matmul(const CpuStream& stream, const GroupedMatmulArgs& args);
void grouped_matmul(const CudaStream& stream, const GroupedMatmulArgs& args);
/// From shapes and dtypes alone.
int64_t grouped_matmul_workspace_bytes(const CpuStream& stream, const GroupedMatmulArgs& args);
int64_t grouped_matmul_workspace_bytes(const CudaStream& stream, const GroupedMatmulArgs& args);

/// c[g] = a[rows of g]^T b[rows of g], or c[g] += : weight gradients. An empty sum is 0. a and b have one dtype, c
/// theirs or float32 for half precision.
struct GroupedWgradArgs {
  ConstView a;  // [m, o]: the gradient of the outputs
  ConstView b;  // [m, i]: the inputs
  View c;       // [groups, o, i]
  RowGroupsView groups;
  bool accumulate = false;
  View workspace;  // uint8 [grouped_wgrad_workspace_bytes(stream, args)]
};
void grouped_wgrad(const CpuStream& stream, const GroupedWgradArgs& args);
void grouped_wgrad(const CudaStream& stream, const GroupedWgradArgs& args);
int64_t grouped_wgrad_workspace_bytes(const CpuStream& stream, const GroupedWgradArgs& args);
int64_t grouped_wgrad_workspace_bytes(const CudaStream& stream, const GroupedWgradArgs& args);

}  // namespace megatron::kernels
