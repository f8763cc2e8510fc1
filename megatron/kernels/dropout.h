// Dropout, with the bias and the residual addition around it.
// The overloads for CUDA make the same mask bit for bit. They take fp32, bf16 and fp16, and throw NotSupported for
// fp64.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/random.h"
#include "megatron/core/sequence_layout_view.h"
#include "megatron/core/step_state.h"
#include "megatron/core/view.h"
#include "megatron/kernels/column_sum.h"

namespace megatron::kernels {

/// The dropout mask: feature f of row r of a [..., h] tensor is dropped if
/// draw(key, state->step, rows(r), first_feature + f) < dropout_threshold(rate), else multiplied by 1 / (1 - rate).
/// So the mask does not depend on the sharding of the tensor, and backward recomputes it.
struct DropoutMask {
  double rate = 0;  // in [0, 1); with 0 the other fields are not read
  RandomKey key;
  const StepState* state = nullptr;  // in device memory
  RowMap rows;
  int64_t first_feature = 0;  // global index of feature 0, for column shards
};

/// y = residual + dropout(x + bias). Any floating dtypes, which may differ (fp64 only together); the last dimension is
/// contiguous. Without residual and bias this is dropout alone.
struct BiasDropoutAddForwardArgs {
  ConstView x;         // [..., h]
  ConstView bias;      // [h]; optional
  ConstView residual;  // shape of x; optional
  View y;              // shape of x; may be x or residual
  DropoutMask dropout;
};
void bias_dropout_add_forward(const CpuStream& stream, const BiasDropoutAddForwardArgs& args);
void bias_dropout_add_forward(const CudaStream& stream, const BiasDropoutAddForwardArgs& args);

/// dx = dropout(dy);  dbias = sum over rows of dx. The gradient of the residual is dy itself.
struct BiasDropoutAddBackwardArgs {
  ConstView dy;             // [..., h]
  View dx;                  // shape of dy; may be dy; undefined: dbias alone
  View dbias;               // [h]; optional
  bool accumulate = false;  // dbias += instead of =
  View workspace;           // uint8; needed with dbias
  DropoutMask dropout;
};
void bias_dropout_add_backward(const CpuStream& stream, const BiasDropoutAddBackwardArgs& args);
void bias_dropout_add_backward(const CudaStream& stream, const BiasDropoutAddBackwardArgs& args);

constexpr int64_t bias_dropout_add_backward_workspace_bytes(int64_t num_rows, int64_t h, DType dtype) {
  return column_sum_workspace_bytes(num_rows, h, dtype);
}

}  // namespace megatron::kernels
