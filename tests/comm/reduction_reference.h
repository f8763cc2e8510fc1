// Reference results of reductions, bit for bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "megatron/comm/operation.h"
#include "tests/comm/buffers.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {

/// Calls `f.operator()<T>()` with every type that has arithmetic.
template <class F>
void for_each_type(F&& f) {
  f.template operator()<double>();
  f.template operator()<float>();
  f.template operator()<BFloat16>();
  f.template operator()<Float16>();
  f.template operator()<int64_t>();
  f.template operator()<int32_t>();
  f.template operator()<uint8_t>();
}

/// The input of each rank.
template <class T>
std::vector<std::vector<T>> inputs_of(int num_ranks, int64_t size) {
  std::vector<std::vector<T>> inputs;
  for (int rank = 0; rank < num_ranks; ++rank) inputs.push_back(values_of<T>(rank, size));
  return inputs;
}

/// The definition, written plainly: from the first rank to the last in float (double for double, 64 bits for integers).
template <class T>
std::vector<T> reference(ReduceOp reduce, const std::vector<std::vector<T>>& inputs) {
  using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, ComputeType<T>>;
  std::vector<T> result(inputs[0].size());
  for (size_t i = 0; i < result.size(); ++i) {
    Sum sum = static_cast<Sum>(inputs[0][i]);
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      const Sum value = static_cast<Sum>(inputs[rank][i]);
      if (reduce == ReduceOp::kMax)
        sum = std::max(sum, value);
      else if (reduce == ReduceOp::kMin)
        sum = std::min(sum, value);
      else
        sum += value;
    }
    if (reduce == ReduceOp::kAverage) sum /= static_cast<Sum>(inputs.size());
    result[i] = static_cast<T>(sum);
  }
  return result;
}

/// Says whether a reduction of `num_ranks` ranks in another order may have given `actual`: each addition, and the
/// division of an average, errs by half an eps of the largest partial sum, and so does that of the reference.
template <class T>
bool is_reduction(const std::vector<T>& actual, ReduceOp reduce, const std::vector<std::vector<T>>& inputs) {
  const std::vector<T> expected = reference(reduce, inputs);
  if (std::is_integral_v<T> || inputs.size() <= 2 || reduce == ReduceOp::kMax || reduce == ReduceOp::kMin)
    return same_bits(actual, expected);
  for (size_t i = 0; i < expected.size(); ++i) {
    double magnitude = 0;
    for (const auto& input : inputs) magnitude += std::abs(static_cast<double>(input[i]));
    const double bound = magnitude * epsilon(dtype_of<T>()) * static_cast<double>(inputs.size() + 1);
    if (!(std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i])) <= bound)) return false;
  }
  return actual.size() == expected.size();
}

}  // namespace megatron::testing
