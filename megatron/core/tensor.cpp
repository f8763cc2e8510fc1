#include "megatron/core/tensor.h"

#include <utility>

namespace megatron {

Tensor::Tensor(Storage storage, DType dtype, const Shape& shape, Storage count)
    : storage_(std::move(storage)),
      count_(std::move(count)),
      dtype_(dtype),
      shape_(shape),
      strides_(shape.contiguous_strides()) {}

ConstView Tensor::view() const {
  const std::byte* base = storage_.data();
  return {base ? base + offset_bytes_ : nullptr,           dtype_,      shape_, strides_,
          reinterpret_cast<const int32_t*>(count_.data()), is_bounded()};
}

View Tensor::view() {
  std::byte* base = storage_.data();
  return {base ? base + offset_bytes_ : nullptr,           dtype_,      shape_, strides_,
          reinterpret_cast<const int32_t*>(count_.data()), is_bounded()};
}

Tensor Tensor::reshape(const Shape& shape) const {
  require<ShapeError>(
      shape.num_elements() == num_elements() && is_contiguous(),
      "[Tensor] a {} tensor of shape {} cannot be seen as {}: it needs the same number of elements and no "
      "gaps.",
      name_of(dtype_), shape_, shape);
  require<ShapeError>(!is_bounded() || shape[0] == shape_[0], "[Tensor] a bounded dimension 0 must stay: {} to {}.",
                      shape_, shape);
  Tensor result = *this;
  result.shape_ = shape;
  result.strides_ = shape.contiguous_strides();
  return result;
}

Tensor Tensor::slice(int dim, int64_t begin, int64_t length) const {
  require(!slot.is_recorded(),
          "[Tensor] slice of a recorded tensor loses its gradient. Use an op that splits, or detach().");
  if (dim < 0) dim += shape_.rank();
  require<ShapeError>(dim > 0 || !is_bounded(), "[Tensor] rows {}..{} of a bounded dimension: their count is unknown.",
                      begin, begin + length);
  require<ShapeError>(begin >= 0 && length >= 0 && begin + length <= shape_[dim],
                      "[Tensor] rows {}..{} of dimension {} do not exist in shape {}.", begin, begin + length, dim,
                      shape_);
  Tensor result = *this;
  result.shape_[dim] = length;
  result.offset_bytes_ += begin * strides_[dim] * size_of(dtype_);
  return result;
}

Tensor Tensor::transpose(int a, int b) const {
  require(!slot.is_recorded() && !is_bounded(),
          "[Tensor] transpose of a recorded or bounded tensor: detach() it first.");
  Tensor result = *this;
  std::swap(result.shape_[a], result.shape_[b]);
  std::swap(result.strides_[a], result.strides_[b]);
  return result;
}

Tensor Tensor::on(Storage storage) const {
  Tensor result = detach();
  result.storage_ = std::move(storage);
  return result;
}

Tensor Tensor::detach() const {
  Tensor result = *this;
  result.slot = {};
  return result;
}

}  // namespace megatron
