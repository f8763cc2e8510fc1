// What the optimizer asks of gradients before it uses them: norm, zeros, finiteness. Flat contiguous buffers of any
// floating dtype; results are in device memory.
#pragma once

#include <algorithm>

#include "megatron/core/step_state.h"
#include "megatron/core/stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// Sums are formed over pieces of this many elements, in fp64, and the pieces added in order: independent of the number
/// of threads.
inline constexpr int64_t kStatisticsPiece = 16384;

constexpr int64_t gradient_statistics_workspace_bytes(int64_t n) {
  return 8 * std::max<int64_t>((n + kStatisticsPiece - 1) / kStatisticsPiece, 1);
}

/// result = sum of x^2, or result += with `accumulate`.
struct SquaredNormArgs {
  ConstView x;  // [n]
  double* result = nullptr;
  bool accumulate = false;
  View workspace;  // uint8 [gradient_statistics_workspace_bytes(n)]
};
void squared_norm(const CpuStream& stream, const SquaredNormArgs& args);

/// result = number of elements that are 0, or result += with `accumulate`. A double, as the norm: both go through the
/// same reductions.
struct CountZerosArgs {
  ConstView x;  // [n]
  double* result = nullptr;
  bool accumulate = false;
  View workspace;  // uint8 [gradient_statistics_workspace_bytes(n)]
};
void count_zeros(const CpuStream& stream, const CountZerosArgs& args);

/// Sets state->found_inf to 1 if an element is infinite or NaN; never clears it.
struct CheckFiniteArgs {
  ConstView x;  // [n]
  StepState* state = nullptr;
};
void check_finite(const CpuStream& stream, const CheckFiniteArgs& args);

/// norm = sqrt(squared_norm) * inverse_scale;  state->clip_factor = min(1, max_norm / (norm + 1e-6)), or 1 if max_norm
/// is 0.
struct ClipFactorArgs {
  const double* squared_norm = nullptr;
  double max_norm = 1;
  double* norm = nullptr;
  StepState* state = nullptr;
};
void clip_factor(const CpuStream& stream, const ClipFactorArgs& args);

}  // namespace megatron::kernels
