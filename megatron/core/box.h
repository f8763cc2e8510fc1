// Rectangular parts of tensors: how chunks of a stored tensor relate to the part that someone wants.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/core/shape.h"

namespace megatron {

/// The part of a tensor that begins at `offsets` and has `sizes` elements in each dimension.
struct Box {
  Shape offsets, sizes;

  static Box whole(const Shape& shape);
  bool is_empty() const { return sizes.num_elements() == 0; }
  bool operator==(const Box&) const = default;
  /// "[0, 8) x [4, 12)"
  std::string to_string() const;
};

/// Nothing where they have no element in common. Both have the same rank.
std::optional<Box> intersection(const Box& a, const Box& b);
bool contains(const Shape& shape, const Box& box);

/// Nothing if the boxes cover each element of a tensor of this shape exactly once, otherwise what is wrong.
/// Empty boxes are allowed. Takes O(n log n) for boxes in a grid.
std::optional<std::string> tiling_problem(const Shape& shape, std::span<const Box> boxes);

/// The elements [begin, end) of `box`, counted in row-major order, as boxes in that order: at most 2 * rank - 1 of
/// them, each a row-major run of the range. This is how a flat shard of an optimizer becomes chunks of the parameter.
std::vector<Box> boxes_of_flat_range(const Box& box, int64_t begin, int64_t end);

/// Element `index` of a box, by position within the whole tensor, is at sum((index - offsets) * strides).
int64_t element_offset(const Shape& position, const Shape& strides);

/// Calls run(a, b, n) for each longest run of n elements that is contiguous from offset a in one tensor and from b in
/// the other, in row-major order. Offsets and strides are in elements.
template <class Run>
void for_each_run(const Shape& sizes, const Shape& a_strides, const Shape& b_strides, Run run) {
  if (sizes.num_elements() == 0) return;
  int outer = sizes.rank();  // dimensions before this one are looped over
  int64_t length = 1;
  while (outer > 0) {
    const bool contiguous = a_strides[outer - 1] == length && b_strides[outer - 1] == length;
    if (!contiguous && sizes[outer - 1] != 1) break;
    length *= sizes[--outer];
  }
  Shape index = sizes;
  for (int dim = 0; dim < outer; ++dim) index[dim] = 0;
  for (;;) {
    int64_t a = 0, b = 0;
    for (int dim = 0; dim < outer; ++dim) {
      a += index[dim] * a_strides[dim];
      b += index[dim] * b_strides[dim];
    }
    run(a, b, length);
    int dim = outer - 1;
    while (dim >= 0 && ++index[dim] == sizes[dim]) index[dim--] = 0;
    if (dim < 0) return;
  }
}

}  // namespace megatron

template <>
struct fmt::formatter<megatron::Box> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  fmt::format_context::iterator format(const megatron::Box& box, fmt::format_context& context) const;
};
