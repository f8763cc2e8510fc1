// Rows sorted by group, such as routed tokens by expert. How many rows a group has is known in device memory alone.
#pragma once

#include <cstdint>
#include <string_view>

#include "megatron/core/context.h"
#include "megatron/core/row_groups_view.h"

namespace megatron {

/// The groups of a tensor of rows. Copies share the offsets.
struct RowGroups {
  Tensor offsets;        // [num_groups + 1] int32
  int64_t capacity = 0;  // rows of a tensor over these groups
  Storage count;         // the number of rows, where it may be below the capacity; undefined if it never is

  int64_t num_groups() const { return offsets.size(0) - 1; }
  RowGroupsView view() const { return {offsets.data<int32_t>(), num_groups(), capacity}; }
  /// A tensor of `columns` elements for each row.
  Tensor empty_rows(const Context& ctx, std::string_view name, int64_t columns, DType dtype) const {
    return ctx.empty_bounded(name, {capacity, columns}, dtype, count);
  }
  void require_rows(std::string_view op, const Tensor& x) const {
    require<ShapeError>(x.shape().rank() > 0 && x.size(0) == capacity && x.count() == count,
                        "[{}] a tensor of shape {} has not the {} rows of the groups, or another count. Permute it "
                        "with the same routing map.",
                        op, x.shape(), capacity);
  }
};

}  // namespace megatron
