// Moving rows by index lists: routed tokens to experts and back. Index lists are int32 and contiguous; -1 stands for no
// row. Dimension 0 may be bounded by a count in device memory; a count above the capacity sets StepState::overflow and
// only the rows within the capacity are handled. Dtypes of inputs and outputs may differ (fp64 only together).
// The overloads for CUDA take fp32, bf16 and fp16, with index lists and state in device memory, and throw NotSupported
// for fp64.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/step_state.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// y[i] = weights[i] * x[index[i]], zero where index[i] is -1.
struct GatherRowsArgs {
  ConstView x;                 // [t, h]
  ConstView index;             // [m]
  ConstView weights;           // [m] floating; optional
  View y;                      // [m, h], may be bounded
  StepState* state = nullptr;  // needed if y is bounded
};
void gather_rows(const CpuStream& stream, const GatherRowsArgs& args);
void gather_rows(const CudaStream& stream, const GatherRowsArgs& args);

/// y[index[i]] = sum of the x[i] with that index, in the order of i, in fp32 (fp64 for fp64), rounded once; other rows
/// become zero. With `accumulate`, y[index[i]] +=. The transpose of gather_rows. Deterministic.
struct ScatterAddRowsArgs {
  ConstView x;      // [m, h], may be bounded
  ConstView index;  // [m]
  View y;           // [t, h]
  bool accumulate = false;
  View workspace;              // uint8 [scatter_add_rows_workspace_bytes(m)]
  StepState* state = nullptr;  // needed if x is bounded
};
void scatter_add_rows(const CpuStream& stream, const ScatterAddRowsArgs& args);
void scatter_add_rows(const CudaStream& stream, const ScatterAddRowsArgs& args);

constexpr int64_t scatter_add_rows_workspace_bytes(int64_t m) { return 16 * m; }

/// y[t] = sum over j of weights[t, j] * x[slots[t, j]]: combines the outputs of a token's k experts. Missing slots (-1,
/// dropped by capacity) add nothing.
struct CombineRowsForwardArgs {
  ConstView x;        // [m, h]
  ConstView slots;    // [t, k] int32; each row of x at most once
  ConstView weights;  // [t, k] floating, contiguous; optional: 1
  View y;             // [t, h]
};
void combine_rows_forward(const CpuStream& stream, const CombineRowsForwardArgs& args);
void combine_rows_forward(const CudaStream& stream, const CombineRowsForwardArgs& args);

/// dx[slots[t, j]] = weights[t, j] * dy[t], zero for rows without a slot; dweights[t, j] = dy[t] . x[slots[t, j]],
/// zero for missing slots.
struct CombineRowsBackwardArgs {
  ConstView x;        // [m, h]
  ConstView slots;    // [t, k]
  ConstView weights;  // [t, k]
  ConstView dy;       // [t, h]
  View dx;            // [m, h]; not x
  View dweights;      // [t, k], contiguous
};
void combine_rows_backward(const CpuStream& stream, const CombineRowsBackwardArgs& args);
void combine_rows_backward(const CudaStream& stream, const CombineRowsBackwardArgs& args);

}  // namespace megatron::kernels
