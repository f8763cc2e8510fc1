// The kernels' view of rows that are sorted by group.
#pragma once

#include <cstdint>

namespace megatron {

/// Group g has the rows [begin(g), end(g)). Constant expressions are device code too.
struct RowGroupsView {
  const int32_t* offsets = nullptr;  // [num_groups + 1] in device memory, ascending from 0
  int64_t num_groups = 0, capacity = 0;

  /// Rows beyond the capacity belong to no group.
  constexpr int64_t begin(int64_t group) const { return offsets[group] < capacity ? offsets[group] : capacity; }
  constexpr int64_t end(int64_t group) const { return begin(group + 1); }
  constexpr int64_t num_rows() const { return begin(num_groups); }
  /// The group of a row; num_groups for a row past the last.
  constexpr int64_t group_of(int64_t row) const {
    int64_t low = 0, high = num_groups;  // the first group whose end is above the row
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (end(middle) <= row)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

}  // namespace megatron
