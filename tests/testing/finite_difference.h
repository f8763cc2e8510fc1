// Gradients against central differences.
#pragma once

#include <algorithm>
#include <cmath>

#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {

/// Largest |gradient - (loss(x + h e_i) - loss(x - h e_i)) / 2h| over the elements of the fp64 tensor x, relative to
/// the largest gradient (at least 1); infinite where one is not a number. `loss` reads x and is called twice an
/// element. Compare with kGradientTolerance.
template <class Loss>
double gradient_error(GuardedTensor& x, const GuardedTensor& gradient, Loss&& loss) {
  double largest = 1, error = 0;
  for (double g : gradient.values()) largest = std::max(largest, std::abs(g));
  for (int64_t i = 0; i < x.shape().num_elements(); ++i) {
    const double value = x[i];
    x.store(i, value + kDifferenceStep);
    const double above = loss();
    x.store(i, value - kDifferenceStep);
    const double below = loss();
    x.store(i, value);
    const double difference = std::abs((above - below) / (2 * kDifferenceStep) - gradient[i]);
    error = std::max(error, std::isnan(difference) ? HUGE_VAL : difference);
  }
  return error / largest;
}

/// Sum of a * b: a loss whose gradient in a is b.
inline double dot(const GuardedTensor& a, const GuardedTensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.shape().num_elements(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace megatron::testing
