// Tensors as torch pickles them: a call that rebuilds them from a storage that lies outside of the pickle.
#pragma once

#include <optional>
#include <string>

#include "megatron/core/shape.h"
#include "megatron/dist_checkpointing/element_type.h"
#include "megatron/dist_checkpointing/pickle/pickle_object.h"

namespace megatron {

/// The elements of a tensor. Several tensors may share a storage. Offset and strides are in elements; all
/// elements are within the storage, whose strides are not negative.
struct TorchTensor {
  ElementType type = ElementType::kFloat32;
  Shape shape, strides;
  int64_t offset = 0;
  std::string storage;  // name of the storage's record
  int64_t storage_bytes = 0;

  bool is_contiguous() const { return strides == shape.contiguous_strides() || shape.num_elements() <= 1; }
  int64_t bytes() const { return shape.num_elements() * size_of(type); }
};

/// The tensor, parameter or buffer that `object` is; nothing if it is none of them.
/// @throw CheckpointError if it is one but inconsistent, or of an unknown dtype.
std::optional<TorchTensor> torch_tensor(const pickle::Object& object);

/// The values of a torch.Size, a tuple or a list of int. @throw CheckpointError if negative or of more than
/// Shape::kMaxRank dimensions.
Shape torch_size(const pickle::Object& object);

/// Product of the sizes. @throw CheckpointError if it does not fit, so that no later computation with it overflows.
int64_t checked_num_elements(const Shape& shape);

}  // namespace megatron
