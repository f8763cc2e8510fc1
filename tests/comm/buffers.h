// Values of any dtype that differ from rank to rank, and views on vectors.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "megatron/core/random.h"
#include "megatron/core/view.h"

namespace megatron::testing {

template <class T>
View view_of(std::vector<T>& values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  return {values.data(), dtype_of<T>(), shape, shape.contiguous_strides(), nullptr};
}
template <class T>
View view_of(std::vector<T>& values, const Shape& shape) {
  return {values.data(), dtype_of<T>(), shape, shape.contiguous_strides(), nullptr};
}
/// Elements [begin, begin + length).
template <class T>
View view_of(std::vector<T>& values, int64_t begin, int64_t length) {
  const Shape shape{length};
  return {values.data() + begin, dtype_of<T>(), shape, shape.contiguous_strides(), nullptr};
}

/// A copy of elements [begin, begin + length).
template <class T>
std::vector<T> section_of(const std::vector<T>& values, int64_t begin, int64_t length) {
  return {values.begin() + begin, values.begin() + begin + length};
}

/// The values of `rank` in test number `test`: fractions of both signs, so that sums round.
template <class T>
std::vector<T> values_of(int rank, int64_t size, int64_t test = 0) {
  const RandomKey key = RandomKey::from_seed(7).at(test).at(int64_t{rank});
  std::vector<T> values(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    const double value = 3 * uniform(key, i) - 1;
    if constexpr (std::is_integral_v<T>)
      values[static_cast<size_t>(i)] = static_cast<T>(static_cast<int64_t>(1e9 * value));
    else
      values[static_cast<size_t>(i)] = static_cast<T>(value);
  }
  return values;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace megatron::testing
