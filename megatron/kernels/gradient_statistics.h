// Statistics of gradients for the optimizer: largest absolute value, norm, zeros. Flat contiguous buffers of any
// floating dtype; results are in device memory.
//
// The norm is a sum in fixed point, so its bits depend only on the elements: not on threads, on the split of a buffer
// into calls, or on the distribution over ranks. Terms are x^2 / 4^e in [0, 1], where 2^e is the power of two above the
// largest |x| of all calls and ranks; each is rounded to 2^-76, which keeps all 53 bits of an fp64 square down to
// 2^-23 of the largest, and errs by N 2^-77 at most in all, where fp64 sums err by up to N 2^-53.
// The overloads for CUDA give the same bits. They take fp32, bf16 and fp16, and throw NotSupported for fp64.
#pragma once

#include <algorithm>

#include "megatron/core/cuda_stream.h"
#include "megatron/core/step_state.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// Threads take pieces of this many elements.
inline constexpr int64_t kStatisticsPiece = 16384;

constexpr int64_t gradient_statistics_workspace_bytes(int64_t n) {
  return 24 * std::max<int64_t>((n + kStatisticsPiece - 1) / kStatisticsPiece, 1);
}

/// A sum in fixed point: limbs[0] + limbs[1] 2^43 + limbs[2] 2^86 units of 2^-76. `squared_sum` writes limbs
/// below 2^43, so the limbs of a million ranks can be added without overflow.
inline constexpr int kSumLimbs = 3;

/// result = largest |x|, or the larger of it and result with `accumulate`; 0 if there is none, infinite if an element
/// is, NaN without a sign if one is.
///
/// A guess of the largest of all calls and ranks, from the step before, saves a GPU from reading gradients twice: this
/// pass adds up squares too, and `squared_sum` has no work if the guess has the same power of two above
/// it. No bit of a result depends on it. A CPU does not use it.
struct LargestAbsoluteArgs {
  ConstView x;  // [n]
  double* result = nullptr;
  bool accumulate = false;
  View workspace;                 // uint8 [gradient_statistics_workspace_bytes(n)]
  const double* guess = nullptr;  // optional, any value
  int64_t* limbs = nullptr;       // with a guess: [kSumLimbs], the result of squared_sum with largest = guess
};
void largest_absolute(const CpuStream& stream, const LargestAbsoluteArgs& args);
void largest_absolute(const CudaStream& stream, const LargestAbsoluteArgs& args);

/// limbs = sum of x^2 / 4^e with 2^e from `largest`, or limbs += with `accumulate`; zeros unless `largest` is finite.
struct SquaredSumArgs {
  ConstView x;                      // [n], none larger than *largest
  const double* largest = nullptr;  // of all elements whose squares are added
  int64_t* limbs = nullptr;         // [kSumLimbs]
  bool accumulate = false;
  View workspace;                 // uint8 [gradient_statistics_workspace_bytes(n)]
  const double* guess = nullptr;  // optional: the guess of largest_absolute for the same x and limbs
};
void squared_sum(const CpuStream& stream, const SquaredSumArgs& args);
void squared_sum(const CudaStream& stream, const SquaredSumArgs& args);

/// result = number of elements that are 0, or result += with `accumulate`.
struct CountZerosArgs {
  ConstView x;  // [n]
  int64_t* result = nullptr;
  bool accumulate = false;
  View workspace;  // uint8 [gradient_statistics_workspace_bytes(n)]
};
void count_zeros(const CpuStream& stream, const CountZerosArgs& args);
void count_zeros(const CudaStream& stream, const CountZerosArgs& args);

/// norm = 2^e sqrt(limbs) * state->inverse_scale, or `largest` if that is not finite;
/// state->clip_factor = min(1, max_norm / (norm + 1e-6)), or 1 if max_norm is 0. Without a state: only the norm,
/// unscaled.
struct ClipFactorArgs {
  const double* largest = nullptr;
  const int64_t* limbs = nullptr;  // [kSumLimbs], of all ranks
  double max_norm = 1;
  double* norm = nullptr;
  StepState* state = nullptr;   // optional
  bool finds_overflow = false;  // state->found_inf = 1 if `largest` is not finite
  /// Optional: StepState::overflow of all ranks. state->found_inf = 1 where it is not 0.
  const int64_t* extent_overflow = nullptr;
};
void clip_factor(const CpuStream& stream, const ClipFactorArgs& args);
void clip_factor(const CudaStream& stream, const ClipFactorArgs& args);

}  // namespace megatron::kernels
