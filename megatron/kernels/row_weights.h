// Rows times a number of their own, such as the probability with which a token was routed to an expert, and biases of
// groups of rows. Floating dtypes may differ (fp64 only together); dimension 0 may be bounded.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/row_groups_view.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// y[r] = weights[r] * x[r].
struct ScaleRowsArgs {
  ConstView x;        // [m, h]
  ConstView weights;  // [m]
  View y;             // [m, h]; may be x
};
void scale_rows(const CpuStream& stream, const ScaleRowsArgs& args);
void scale_rows(const CudaStream& stream, const ScaleRowsArgs& args);

/// dots[r] = sum over the columns of a[r] * b[r]; 0 past the true number of rows.
struct RowDotsArgs {
  ConstView a, b;  // [m, h]; a may be bounded
  View dots;       // [m]
};
void row_dots(const CpuStream& stream, const RowDotsArgs& args);
void row_dots(const CudaStream& stream, const RowDotsArgs& args);

/// y[r] = x[r] + weights[r] * bias[group of r].
struct GroupedBiasForwardArgs {
  ConstView x;        // [m, n]
  ConstView bias;     // [groups, n]
  ConstView weights;  // [m]; optional: 1
  RowGroupsView groups;
  View y;  // [m, n]; may be x
};
void grouped_bias_forward(const CpuStream& stream, const GroupedBiasForwardArgs& args);
void grouped_bias_forward(const CudaStream& stream, const GroupedBiasForwardArgs& args);

/// dbias[g] (+)= sum over the rows of group g of weights[r] * dy[r], in the order of the rows.
struct GroupedBiasBackwardArgs {
  ConstView dy;       // [m, n]
  ConstView weights;  // [m]; optional
  RowGroupsView groups;
  View dbias;  // [groups, n]
  bool accumulate = false;
};
void grouped_bias_backward(const CpuStream& stream, const GroupedBiasBackwardArgs& args);
void grouped_bias_backward(const CudaStream& stream, const GroupedBiasBackwardArgs& args);

/// dots[r] = dy[r] . bias[group of r]: the gradient of the weights; 0 past the last row.
struct GroupedBiasDotsArgs {
  ConstView dy;    // [m, n]
  ConstView bias;  // [groups, n]
  RowGroupsView groups;
  View dots;  // [m]
};
void grouped_bias_dots(const CpuStream& stream, const GroupedBiasDotsArgs& args);
void grouped_bias_dots(const CudaStream& stream, const GroupedBiasDotsArgs& args);

}  // namespace megatron::kernels
