// Which layers an option applies to.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

/// An interval N, or one 0/1 entry per layer. Which layers an interval means is up to the option.
struct LayerPattern {
  int64_t interval = 0;            ///< 0: given by `per_layer`, or not given at all
  std::vector<int64_t> per_layer;  ///< [num_layers] of 0 and 1

  bool given() const { return interval != 0 || !per_layer.empty(); }
  bool operator==(const LayerPattern&) const = default;
};

}  // namespace megatron
