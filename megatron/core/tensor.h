// A view on counted storage, with the place of its value on a tape.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/core/storage.h"
#include "megatron/core/view.h"

namespace megatron {

/// Place of a value on a tape: two integers, never a pointer, so there are no cycles. The tape's number makes a value
/// that strays onto another tape an error and not a wrong gradient. Index -1: nothing recorded depends on the value.
struct TapeSlot {
  uint32_t tape = 0;
  int32_t index = -1;
  bool is_recorded() const { return index >= 0; }
};

/// Handle: copies share the storage. Dimension 0 may be bounded (architecture D3): shape()[0] is then the capacity and
/// `count` holds the true size, an int32 in device memory that the tensor owns.
class Tensor {
 public:
  Tensor() = default;
  Tensor(Storage storage, DType dtype, const Shape& shape, Storage count = {});

  bool defined() const { return storage_.defined(); }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t size(int dim) const { return shape_[dim]; }
  const Shape& strides() const { return strides_; }
  int64_t num_elements() const { return shape_.num_elements(); }
  int64_t bytes() const { return num_elements() * size_of(dtype_); }
  bool is_contiguous() const { return strides_ == shape_.contiguous_strides(); }
  /// Bounded is a property of the tensor, not of the pointer, which is null on meta.
  bool is_bounded() const { return count_.defined(); }
  const Storage& count() const { return count_; }
  const Storage& storage() const { return storage_; }
  bool owns_storage_alone() const { return !storage_.is_shared(); }

  ConstView view() const;
  View view();
  /// The first element as T, in host memory; null on meta. A wrong T is an error.
  template <class T>
  T* data() const {
    require<DtypeError>(dtype_ == dtype_of<T>(), "[Tensor] holds {}, asked for {}", name_of(dtype_),
                        name_of(dtype_of<T>()));
    return reinterpret_cast<T*>(storage_.data() ? storage_.data() + offset_bytes_ : nullptr);
  }

  /// The same elements in another shape. Keeps the slot: a gradient has the elements in the same order.
  /// @throw ShapeError if the numbers of elements differ or the tensor is not contiguous.
  Tensor reshape(const Shape& shape) const;
  /// Rows [begin, begin + length) of `dim`. A recorded tensor must be split by an op, or detached first: its gradient
  /// would be lost. Not for a bounded dimension. @throw ShapeError if there are no such rows.
  Tensor slice(int dim, int64_t begin, int64_t length) const;
  /// Dimensions a and b exchanged, without moving data. Not for recorded or bounded tensors.
  Tensor transpose(int a, int b) const;
  /// The same value, unknown to any tape.
  Tensor detach() const;
  /// The same view of a copy of its storage; without a storage, undefined until it gets one.
  Tensor on(Storage storage) const;

  TapeSlot slot;

 private:
  Storage storage_, count_;
  int64_t offset_bytes_ = 0;
  DType dtype_ = DType::kFloat32;
  Shape shape_, strides_;
};

}  // namespace megatron
