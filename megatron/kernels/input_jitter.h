// Random factors near 1, on what a router of a mixture of experts sees. Source: Switch Transformers (arXiv:2101.03961),
// section 2.2.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/random.h"
#include "megatron/core/sequence_layout_view.h"
#include "megatron/core/step_state.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// y = x * f, where the factor f of feature i of row r is uniform in [1 - eps, 1 + eps): 1 + eps * (2 u - 1) with u =
/// draw(key, state->step, rows(r), i) / 2^32. Backward is the same on dy. Any floating dtypes, which may differ (fp64
/// only together); the last dimension is contiguous.
struct InputJitterArgs {
  ConstView x;  // [..., h]
  View y;       // shape of x; may be x
  double eps = 0;
  RandomKey key;
  const StepState* state = nullptr;  // in device memory
  RowMap rows;
};
void input_jitter(const CpuStream& stream, const InputJitterArgs& args);
void input_jitter(const CudaStream& stream, const InputJitterArgs& args);

}  // namespace megatron::kernels
