// The kernels' view of a tensor: pointer, dtype, sizes and strides. No ownership, no tape.
#pragma once

#include <cstdint>

#include "megatron/core/dtype.h"
#include "megatron/core/shape.h"

namespace megatron {

/// Read-only view. Strides are in elements. Where `count` is not null, dimension 0 is bounded: shape[0] is its
/// capacity, known to the host, and the true size lies in device memory (dropless experts). Only kernels read the
/// count.
struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  Shape shape, strides;
  const int32_t* count = nullptr;
  bool is_bounded = count != nullptr;

  bool defined() const { return data != nullptr; }
  int64_t num_elements() const { return shape.num_elements(); }
  bool is_contiguous() const { return strides == shape.contiguous_strides(); }
  /// True size of dimension 0; for kernels.
  int64_t rows() const { return count ? std::min<int64_t>(*count, shape[0]) : shape[0]; }
  /// All dimensions but the last taken together, with dimension 0 at its true size; for kernels over rows. A vector is
  /// one row.
  int64_t num_rows() const {
    if (shape.rank() == 1) return 1;
    return shape[-1] == 0 || shape[0] == 0 ? 0 : rows() * (num_elements() / shape[0] / shape[-1]);
  }
  /// The data as T; a wrong type is an error and never a reinterpretation.
  template <class T>
  const T* as() const {
    require<DtypeError>(dtype == dtype_of<T>(), "[view] the tensor holds {}, the kernel reads {}", name_of(dtype),
                        name_of(dtype_of<T>()));
    return static_cast<const T*>(data);
  }
};

/// Writable view.
struct View {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  Shape shape, strides;
  const int32_t* count = nullptr;
  bool is_bounded = count != nullptr;

  operator ConstView() const { return {data, dtype, shape, strides, count, is_bounded}; }
  ConstView read() const { return *this; }
  bool defined() const { return data != nullptr; }
  int64_t num_elements() const { return shape.num_elements(); }
  bool is_contiguous() const { return read().is_contiguous(); }
  int64_t rows() const { return read().rows(); }
  int64_t num_rows() const { return read().num_rows(); }
  template <class T>
  T* as() const {
    read().as<T>();
    return static_cast<T*>(data);
  }
};

}  // namespace megatron
