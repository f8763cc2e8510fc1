// Tensors in host memory for tests of kernels: any dtype, values as doubles, and guards that show writes outside.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "megatron/core/random.h"
#include "megatron/core/view.h"

namespace megatron::testing {

/// n normal numbers.
inline std::vector<double> random_values(int64_t n, uint64_t seed, double scale = 1) {
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = scale * normal(RandomKey::from_seed(seed), i);
  return values;
}

/// Every byte that is not part of an element is a guard. With `gap` > 0 each dimension but the last is followed by
/// that many unused elements, so the view is strided and its last dimension contiguous. Without values the elements
/// hold the guard pattern.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  GuardedTensor(DType dtype, const Shape& shape, const std::vector<double>& values = {}, int64_t gap = 0) {
    view_.dtype = dtype;
    view_.shape = view_.strides = shape;
    int64_t step = 1;
    for (int dim = shape.rank() - 1; dim >= 0; --dim) {
      view_.strides[dim] = step;
      step = step * shape[dim] + gap;
    }
    bytes_.assign(static_cast<size_t>((step + 2 * kGuardElements) * size_of(dtype)), kGuard);
    if (!values.empty()) set(values);
  }

  View view() {
    View view = view_;
    view.data = bytes_.data() + kGuardElements * size_of(view_.dtype);
    return view;
  }
  /// Dimension 0 bounded by a count that the caller keeps.
  View bounded(const int32_t* count) {
    const View v = view();
    return {v.data, v.dtype, v.shape, v.strides, count};
  }
  const Shape& shape() const { return view_.shape; }
  DType dtype() const { return view_.dtype; }

  void set(const std::vector<double>& values) {
    for (int64_t i = 0; i < view_.num_elements(); ++i) store(i, values[static_cast<size_t>(i)]);
  }
  void store(int64_t index, double value) {
    std::byte* place = reinterpret_cast<std::byte*>(bytes_.data()) + byte_offset(index);
    dispatch([&]<class T>() {
      const T stored = static_cast<T>(value);
      std::memcpy(place, &stored, sizeof(T));
    });
  }
  double operator[](int64_t index) const {
    double value = 0;
    dispatch([&]<class T>() {
      T stored;
      std::memcpy(&stored, bytes_.data() + byte_offset(index), sizeof(T));
      value = static_cast<double>(stored);
    });
    return value;
  }
  /// In logical order, as stored (rounded).
  std::vector<double> values() const {
    std::vector<double> values(static_cast<size_t>(view_.num_elements()));
    for (int64_t i = 0; i < view_.num_elements(); ++i) values[static_cast<size_t>(i)] = (*this)[i];
    return values;
  }
  bool guards_are_intact() const {
    std::vector<bool> used(bytes_.size(), false);
    for (int64_t i = 0; i < view_.num_elements(); ++i)
      for (int64_t byte = 0; byte < size_of(view_.dtype); ++byte)
        used[static_cast<size_t>(byte_offset(i) + byte)] = true;
    for (size_t i = 0; i < bytes_.size(); ++i)
      if (!used[i] && bytes_[i] != kGuard) return false;
    return true;
  }

 private:
  static constexpr uint8_t kGuard = 0xA5;
  static constexpr int64_t kGuardElements = 32;

  int64_t byte_offset(int64_t index) const {
    int64_t offset = kGuardElements;
    for (int dim = view_.shape.rank() - 1; dim >= 0; --dim) {
      offset += index % view_.shape[dim] * view_.strides[dim];
      index /= view_.shape[dim];
    }
    return offset * size_of(view_.dtype);
  }
  template <class F>
  void dispatch(F&& f) const {
    switch (view_.dtype) {
      case DType::kInt64:
        return f.template operator()<int64_t>();
      case DType::kInt32:
        return f.template operator()<int32_t>();
      case DType::kUInt8:
        return f.template operator()<uint8_t>();
      default:
        return dispatch_floating(view_.dtype, f);
    }
  }

  View view_;
  std::vector<uint8_t> bytes_;
};

/// Largest |actual - expected| / (absolute + relative * |expected|); infinite where an element is not a number or the
/// sizes differ. With the bound of the sums as `absolute` and eps of the storage dtype as `relative`, expect <= 1.
inline double largest_error(const GuardedTensor& actual, const std::vector<double>& expected, double absolute,
                            double relative) {
  if (actual.shape().num_elements() != static_cast<int64_t>(expected.size())) return HUGE_VAL;
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double value = actual[static_cast<int64_t>(i)], bound = absolute + relative * std::abs(expected[i]);
    const double error = value == expected[i] ? 0 : std::abs(value - expected[i]) / bound;  // equal infinities too
    largest = std::max(largest, std::isnan(error) ? HUGE_VAL : error);
  }
  return largest;
}

/// uint8 workspace of exactly this size.
inline GuardedTensor workspace_of(int64_t bytes) { return GuardedTensor(DType::kUInt8, {bytes}); }

inline constexpr DType kFloatingTypes[] = {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kFloat16};
/// The dtype in which kernels compute on this one.
constexpr DType compute_dtype(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

}  // namespace megatron::testing
