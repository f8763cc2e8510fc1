// Sizes and strides of a tensor, kept in place.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "megatron/base/error.h"

namespace megatron {

/// Up to six dimensions, outermost first. A value type without allocation.
class Shape {
 public:
  static constexpr int kMaxRank = 6;
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
    require<ShapeError>(sizes.size() <= kMaxRank, "[Shape] at most {} dimensions, got {}", kMaxRank, sizes.size());
    std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  }
  int rank() const { return rank_; }
  /// Negative dimensions count from the end: -1 is the last.
  int64_t operator[](int dim) const { return sizes_[static_cast<size_t>(dim < 0 ? dim + rank_ : dim)]; }
  int64_t& operator[](int dim) { return sizes_[static_cast<size_t>(dim < 0 ? dim + rank_ : dim)]; }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }
  int64_t num_elements() const {
    int64_t product = 1;
    for (int64_t size : *this) product *= size;
    return product;
  }
  /// Strides, in elements, of a tensor of this shape with the last dimension innermost.
  Shape contiguous_strides() const {
    Shape strides = *this;
    int64_t step = 1;
    for (int dim = rank_ - 1; dim >= 0; --dim) {
      strides[dim] = step;
      step *= (*this)[dim];
    }
    return strides;
  }
  bool operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }
  /// "[2, 3]"
  std::string to_string() const;

 private:
  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};
}  // namespace megatron

template <>
struct fmt::formatter<megatron::Shape> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  fmt::format_context::iterator format(const megatron::Shape& shape, fmt::format_context& context) const;
};
