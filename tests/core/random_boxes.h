// Random ways of cutting a tensor.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "megatron/core/box.h"

namespace megatron {

/// Cuts a box in two at random, several times: the parts tile it, but in no grid, and some are empty.
inline std::vector<Box> random_tiling(const Box& whole, int num_cuts, std::mt19937& random) {
  std::vector<Box> boxes = {whole};
  for (int i = 0; i < num_cuts; ++i) {
    Box& box = boxes[random() % boxes.size()];
    const int dim = static_cast<int>(random() % static_cast<unsigned>(whole.sizes.rank()));
    const auto at = static_cast<int64_t>(random() % static_cast<uint64_t>(box.sizes[dim] + 1));
    Box rest = box;
    box.sizes[dim] = at;
    rest.offsets[dim] += at;
    rest.sizes[dim] -= at;
    boxes.push_back(rest);
  }
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

inline Box random_box(const Shape& shape, std::mt19937& random) {
  Box box = Box::whole(shape);
  for (int dim = 0; dim < shape.rank(); ++dim) {
    box.offsets[dim] = static_cast<int64_t>(random() % static_cast<uint64_t>(shape[dim]));
    box.sizes[dim] = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(shape[dim] - box.offsets[dim]));
  }
  return box;
}

}  // namespace megatron
