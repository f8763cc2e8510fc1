// Tensors on disk by Megatron's names, whatever format they have there.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "megatron/core/view.h"
#include "megatron/dist_checkpointing/element_type.h"

namespace megatron {

/// The begin of a part of a tensor on disk. Places are read fastest in ascending order.
struct StoredPlace {
  std::string file;
  int64_t offset = 0;  ///< in bytes
  auto operator<=>(const StoredPlace&) const = default;
};

/// The source that weights are loaded from. Names and shapes are those of Megatron's distributed checkpoints
/// (megatron_names.h).
class StoredTensors {
 public:
  virtual ~StoredTensors() = default;

  /// Nothing where there is no such tensor.
  virtual std::optional<ElementType> type_of(std::string_view key) const = 0;
  /// The place of the element at `offsets`, or of nothing where it is not known.
  virtual StoredPlace place_of(std::string_view, const Shape& /*offsets*/) const { return {}; }
  /// Fills `destination` (host memory, any strides, dtype as stored) with the part of a tensor that begins at
  /// `offsets`.
  /// @param global_shape  what the caller holds the whole tensor to be. @throw CheckpointError if it is another, or the
  /// tensor is missing or damaged.
  virtual void read_tensor(std::string_view key, const Shape& global_shape, const Shape& offsets,
                           const View& destination) const = 0;
  /// The same where the stored tensor may have another shape (padded vocabulary): what both have is copied, the rest of
  /// `destination` is zero.
  virtual void read_resized_tensor(std::string_view key, const Shape& offsets, const View& destination) const = 0;
};

/// Sets every element of a view of host memory to zero.
void fill_zero(const View& view);

}  // namespace megatron
