#include "megatron/core/box.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "megatron/base/word_list.h"

namespace megatron {
namespace {

int64_t end_of(const Box& box, int dim) { return box.offsets[dim] + box.sizes[dim]; }

/// The dimension in which the boxes begin at the most places: sorted along it, few boxes are next to each other.
int best_sweep_dimension(std::span<const Box> boxes, int rank) {
  int best = 0;
  size_t most = 0;
  for (int dim = 0; dim < rank; ++dim) {
    std::set<int64_t> begins;
    for (const Box& box : boxes) begins.insert(box.offsets[dim]);
    if (begins.size() > most) {
      most = begins.size();
      best = dim;
    }
  }
  return best;
}

std::optional<std::string> overlap_problem(std::span<const Box> boxes, int rank) {
  if (rank == 0)
    return boxes.size() <= 1 ? std::nullopt : std::optional(fmt::format("{} chunks hold one value", boxes.size()));
  const int dim = best_sweep_dimension(boxes, rank);
  std::vector<const Box*> sorted, open;
  for (const Box& box : boxes)
    if (!box.is_empty()) sorted.push_back(&box);
  std::ranges::sort(sorted, {}, [&](const Box* box) { return box->offsets[dim]; });
  for (const Box* box : sorted) {
    std::erase_if(open, [&](const Box* other) { return end_of(*other, dim) <= box->offsets[dim]; });
    for (const Box* other : open)
      if (intersection(*box, *other)) return fmt::format("chunks {} and {} overlap", *other, *box);
    open.push_back(box);
  }
  return std::nullopt;
}

/// The elements [begin, end) of dimensions `dim` and later. `prefix` is `box` with the earlier dimensions narrowed.
void append_flat_range(const Box& box, const Shape& steps, Box prefix, int dim, int64_t begin, int64_t end,
                       std::vector<Box>& boxes) {
  if (begin >= end) return;
  if (dim == box.sizes.rank()) {
    boxes.push_back(prefix);
    return;
  }
  const auto place = [&](int64_t first, int64_t count) {
    Box placed = prefix;
    placed.offsets[dim] = box.offsets[dim] + first;
    placed.sizes[dim] = count;
    return placed;
  };
  const int64_t step = steps[dim];
  const int64_t first = begin / step, last = (end - 1) / step;
  if (first == last) {
    append_flat_range(box, steps, place(first, 1), dim + 1, begin - first * step, end - first * step, boxes);
    return;
  }
  const int64_t whole_begin = (begin + step - 1) / step, whole_end = end / step;
  append_flat_range(box, steps, place(first, 1), dim + 1, begin - first * step, begin == first * step ? 0 : step,
                    boxes);
  if (whole_begin < whole_end) boxes.push_back(place(whole_begin, whole_end - whole_begin));
  append_flat_range(box, steps, place(whole_end, 1), dim + 1, 0, end - whole_end * step, boxes);
}

}  // namespace

Box Box::whole(const Shape& shape) {
  Box box{shape, shape};
  for (int dim = 0; dim < shape.rank(); ++dim) box.offsets[dim] = 0;
  return box;
}

std::string Box::to_string() const {
  std::vector<std::string> ranges;
  ranges.reserve(static_cast<size_t>(sizes.rank()));
  for (int dim = 0; dim < sizes.rank(); ++dim)
    ranges.push_back(fmt::format("[{}, {})", offsets[dim], end_of(*this, dim)));
  return ranges.empty() ? "the scalar" : joined(ranges, " x ");
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  require<ShapeError>(a.sizes.rank() == b.sizes.rank(), "[Box] two boxes of {} and {} dimensions", a.sizes.rank(),
                      b.sizes.rank());
  Box common = a;
  for (int dim = 0; dim < a.sizes.rank(); ++dim) {
    common.offsets[dim] = std::max(a.offsets[dim], b.offsets[dim]);
    common.sizes[dim] = std::min(end_of(a, dim), end_of(b, dim)) - common.offsets[dim];
    if (common.sizes[dim] <= 0) return std::nullopt;
  }
  return common;
}

bool contains(const Shape& shape, const Box& box) {
  if (box.offsets.rank() != shape.rank() || box.sizes.rank() != shape.rank()) return false;
  for (int dim = 0; dim < shape.rank(); ++dim)
    if (box.offsets[dim] < 0 || box.sizes[dim] < 0 || box.sizes[dim] > shape[dim] ||
        box.offsets[dim] > shape[dim] - box.sizes[dim])
      return false;
  return true;
}

std::optional<std::string> tiling_problem(const Shape& shape, std::span<const Box> boxes) {
  int64_t covered = 0;
  for (const Box& box : boxes) {
    if (!contains(shape, box)) return fmt::format("chunk {} is not within shape {}", box, shape);
    covered += box.sizes.num_elements();
  }
  if (auto problem = overlap_problem(boxes, shape.rank())) return problem;
  if (covered == shape.num_elements()) return std::nullopt;
  return fmt::format("the chunks hold {} of {} elements", covered, shape.num_elements());
}

std::vector<Box> boxes_of_flat_range(const Box& box, int64_t begin, int64_t end) {
  require<ShapeError>(0 <= begin && begin <= end && end <= box.sizes.num_elements(),
                      "[Box] elements [{}, {}) of a box of {}", begin, end, box.sizes.num_elements());
  std::vector<Box> boxes;
  append_flat_range(box, box.sizes.contiguous_strides(), box, 0, begin, end, boxes);
  return boxes;
}

int64_t element_offset(const Shape& position, const Shape& strides) {
  int64_t offset = 0;
  for (int dim = 0; dim < position.rank(); ++dim) offset += position[dim] * strides[dim];
  return offset;
}

}  // namespace megatron

fmt::format_context::iterator fmt::formatter<megatron::Box>::format(const megatron::Box& box,
                                                                    fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", box.to_string());
}
