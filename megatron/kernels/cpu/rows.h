// Rows of strided views, read and written in the compute type piece by piece.
#pragma once

#include <array>
#include <type_traits>

#include "megatron/core/view.h"
#include "megatron/kernels/cpu/convert.h"
#include "megatron/kernels/cpu/parallel.h"

namespace megatron::kernels {

/// Offset, in elements, of each index over the first `num_dims` dimensions taken together, outermost first. Neighbours
/// that follow each other in memory are merged, so that most tensors need one multiplication.
class RowOffsets {
 public:
  RowOffsets() = default;
  RowOffsets(const Shape& shape, const Shape& strides, int num_dims) {
    for (int dim = 0; dim < num_dims; ++dim) {
      if (shape[dim] == 1) continue;
      if (num_ > 0 && strides_[num_ - 1] == shape[dim] * strides[dim]) {
        sizes_[num_ - 1] *= shape[dim];
        strides_[num_ - 1] = strides[dim];
      } else {
        sizes_[num_] = shape[dim];
        strides_[num_++] = strides[dim];
      }
    }
  }
  int64_t operator()(int64_t row) const {
    int64_t offset = 0;
    for (size_t dim = num_; dim-- > 1;) {
      offset += row % sizes_[dim] * strides_[dim];
      row /= sizes_[dim];
    }
    return offset + row * strides_[0];
  }

 private:
  std::array<int64_t, Shape::kMaxRank> sizes_{}, strides_{};
  size_t num_ = 0;
};

/// Rows of a view (all dimensions but the last taken together) for reading. A vector is a view of one row. C is the
/// compute type: float, or double for fp64. False if the view is undefined.
template <class C>
class RowReader {
 public:
  explicit RowReader(const ConstView& view)
      : data_(view.data), dtype_(view.dtype), offsets_(view.shape, view.strides, view.shape.rank() - 1) {
    if (view.shape.rank() > 0 && view.shape[-1] > 1) step_ = view.strides[-1];
    require<DtypeError>(!data_ || (is_floating(dtype_) && (sizeof(C) == sizeof(double) || dtype_ != DType::kFloat64)),
                        "[kernels] a {} operand does not go with {} ones", name_of(dtype_), name_of(dtype_of<C>()));
  }
  explicit operator bool() const { return data_ != nullptr; }

  /// Elements [begin, begin + n) of a row: in place if they are stored as C, else in `buffer`.
  const C* read(int64_t row, int64_t begin, int64_t n, C* buffer) const {
    const int64_t first = offset(row, begin);
    if (holds_compute_type()) return static_cast<const C*>(data_) + first;
    to_compute(dtype_, data_, first, step_, n, buffer);
    return buffer;
  }

 protected:
  int64_t offset(int64_t row, int64_t begin) const { return offsets_(row) + begin * step_; }
  bool holds_compute_type() const { return dtype_ == dtype_of<C>() && step_ == 1; }
  DType dtype() const { return dtype_; }
  int64_t step() const { return step_; }

 private:
  const void* data_;
  DType dtype_;
  int64_t step_ = 1;
  RowOffsets offsets_;
};

/// Rows of a view for writing, and reading.
template <class C>
class RowWriter : public RowReader<C> {
 public:
  explicit RowWriter(const View& view) : RowReader<C>(view), data_(view.data) {}

  /// Memory for elements from `begin` on: in place if they are stored as C, else `buffer`. Call `store` afterwards.
  C* target(int64_t row, int64_t begin, C* buffer) const {
    return this->holds_compute_type() ? static_cast<C*>(data_) + this->offset(row, begin) : buffer;
  }
  /// Rounds n values at target() to the storage dtype.
  void store(int64_t row, int64_t begin, int64_t n, const C* values) const {
    if (!this->holds_compute_type())
      from_compute(this->dtype(), values, n, data_, this->offset(row, begin), this->step());
  }

 private:
  void* data_;
};

/// body(begin, n) for the pieces of a row of `length` elements.
template <class Body>
void for_each_piece(int64_t length, Body&& body) {
  for (int64_t begin = 0; begin < length; begin += kPieceElements)
    body(begin, std::min(kPieceElements, length - begin));
}

/// body(row, begin, n) for the pieces of `num_rows` rows of `length` elements, dealt to threads in contiguous ranges.
/// @param worth  of an element, in elements of memory traffic (parallel_for)
template <class Body>
void parallel_pieces(const CpuStream& stream, int64_t num_rows, int64_t length, Body&& body, int64_t worth = 1) {
  const int64_t pieces = (length + kPieceElements - 1) / kPieceElements;
  parallel_for(stream, num_rows * pieces, std::min(length, kPieceElements) * worth, [&](int64_t item, int64_t end) {
    int64_t row = item / pieces, piece = item % pieces;
    for (; item < end; ++item) {
      const int64_t begin = piece * kPieceElements;
      body(row, begin, std::min(kPieceElements, length - begin));
      if (++piece == pieces) {
        piece = 0;
        ++row;
      }
    }
  });
}

}  // namespace megatron::kernels
