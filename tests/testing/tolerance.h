// The error that a test may accept: rounding, computed from dtype and length of the sums, never a typed constant.
#pragma once

#include <cmath>
#include <cstdint>

#include "megatron/core/dtype.h"

namespace megatron::testing {

/// Rounding errors of k terms are independent and add like a random walk: eps * sqrt(k) is their deviation, and the
/// largest of 10^6 normally distributed values lies within 5 deviations. 8 leaves room for the correlation of errors
/// that share an operand.
inline constexpr double kDeviations = 8;

/// Bound of |actual - expected| for a value that sums `reduction_length` terms, where what is rounded to `dtype` is of
/// size about `magnitude`: kDeviations * eps(dtype) * sqrt(reduction_length) * magnitude. If only the terms are
/// rounded, that is their size; if the running sum is, that of the sum: sqrt(reduction_length) times the terms' if
/// signs vary.
inline double tolerance(DType dtype, int64_t reduction_length = 1, double magnitude = 1) {
  return kDeviations * epsilon(dtype) * std::sqrt(static_cast<double>(reduction_length < 1 ? 1 : reduction_length)) *
         magnitude;
}

/// Bound where terms are formed and summed in `compute` and only the result, of size about `result`, is rounded to
/// `storage`: bf16 products that are summed in fp32.
inline double tolerance(DType storage, DType compute, int64_t reduction_length, double magnitude, double result) {
  return tolerance(storage, 1, result) + tolerance(compute, reduction_length, magnitude);
}

/// Central differences in fp64 with step h err by about h^2 f''' / 6 + eps f / h, least near h = cbrt(eps) = 6e-6,
/// where both are near 4e-11 of f. The bound on the relative error of a gradient leaves room for cancellation in f.
inline constexpr double kDifferenceStep = 6e-6;
inline constexpr double kGradientTolerance = 1e-7;

}  // namespace megatron::testing
