// Sums over rows that kernels compute in addition to their main work: gradients of biases and norm weights.
#pragma once

#include "megatron/kernels/column_sum.h"
#include "megatron/kernels/cpu/rows.h"

namespace megatron::kernels {

/// Rows are processed in parts, each part with its own sums in the workspace. `num_columns` may be 0: no sums.
template <class C>
class ColumnSums {
 public:
  ColumnSums(const View& workspace, int64_t capacity_rows, int64_t num_columns)
      : num_parts_(num_column_sum_parts(capacity_rows)), num_columns_(num_columns) {
    if (num_columns == 0) return;
    const int64_t bytes = column_sum_workspace_bytes(capacity_rows, num_columns, dtype_of<C>());
    require<InternalError>(workspace.defined() && workspace.num_elements() >= bytes,
                           "[kernels] {} bytes of workspace are needed for {} column sums, got {}", bytes, num_columns,
                           workspace.defined() ? workspace.num_elements() : 0);
    data_ = reinterpret_cast<C*>(workspace.as<uint8_t>());
  }

  /// body(row, sums) for each row; `sums` [num_columns] belongs to the row's part and starts at zero.
  template <class Body>
  void for_each_row(const CpuStream& stream, int64_t num_rows, int64_t row_length, Body&& body) const {
    parallel_for(stream, num_parts_, row_length * num_rows / num_parts_, [&](int64_t part, int64_t end_part) {
      for (; part < end_part; ++part) {
        C* sums = data_ + part * num_columns_;
        std::fill_n(sums, num_columns_, C(0));
        const int64_t end = num_rows * (part + 1) / num_parts_;
        for (int64_t row = num_rows * part / num_parts_; row < end; ++row) body(row, sums);
      }
    });
  }

  /// out = columns [first_column, first_column + size of out) of the sums, or out +=.
  void store(const CpuStream& stream, int64_t first_column, const View& out, bool accumulate) const;

 private:
  C* data_ = nullptr;
  int64_t num_parts_, num_columns_;
};

}  // namespace megatron::kernels
