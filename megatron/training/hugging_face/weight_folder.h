// The tensors of a folder under the names of Hugging Face's models, whatever files hold them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/core/box.h"
#include "megatron/dist_checkpointing/element_type.h"

namespace megatron {

/// Several threads may read at once.
class WeightFolder {
 public:
  struct Tensor {
    ElementType type = ElementType::kFloat32;
    Shape shape;
  };

  virtual ~WeightFolder() = default;
  virtual const std::string& directory() const = 0;
  virtual std::vector<std::string> names() const = 0;
  virtual bool contains(std::string_view name) const = 0;
  /// @throw CheckpointError if there is no such tensor.
  virtual Tensor tensor(std::string_view name) const = 0;
  /// Copies a part of a tensor to host memory with these strides (in elements).
  virtual void read_box(std::string_view name, const Box& box, std::byte* destination,
                        const Shape& destination_strides) const = 0;
};

}  // namespace megatron
