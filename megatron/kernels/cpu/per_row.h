// Operands with one element for a row: ids, targets and index lists; weights and masks.
#pragma once

#include "megatron/kernels/cpu/rows.h"

namespace megatron::kernels {

/// Elements of an int32 or int64 view in logical order.
class IndexReader {
 public:
  explicit IndexReader(const ConstView& view)
      : data_(view.data), is_wide_(view.dtype == DType::kInt64), offsets_(view.shape, view.strides, view.shape.rank()) {
    require<DtypeError>(!data_ || is_wide_ || view.dtype == DType::kInt32, "[kernels] indices must be integers, got {}",
                        name_of(view.dtype));
  }
  explicit operator bool() const { return data_ != nullptr; }
  int64_t operator[](int64_t i) const {
    const int64_t offset = offsets_(i);
    return is_wide_ ? static_cast<const int64_t*>(data_)[offset] : static_cast<const int32_t*>(data_)[offset];
  }

 private:
  const void* data_;
  bool is_wide_;
  RowOffsets offsets_;
};

/// Elements of a floating view in logical order: weights, masks and gradients with one element for each row.
class ScalarReader {
 public:
  explicit ScalarReader(const ConstView& view)
      : data_(view.data), dtype_(view.dtype), offsets_(view.shape, view.strides, view.shape.rank()) {
    require<DtypeError>(!data_ || is_floating(dtype_), "[kernels] weights and masks must be floating, got {}",
                        name_of(dtype_));
  }
  explicit operator bool() const { return data_ != nullptr; }
  double operator[](int64_t i) const {
    double value = 0;
    to_compute(dtype_, data_, offsets_(i), 1, 1, &value);
    return value;
  }

 private:
  const void* data_;
  DType dtype_;
  RowOffsets offsets_;
};

}  // namespace megatron::kernels
