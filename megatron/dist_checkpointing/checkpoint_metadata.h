// The index of a checkpoint (`.metadata` of torch.distributed.checkpoint): which tensors and objects it holds and in
// which bytes of which file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatron/core/box.h"
#include "megatron/dist_checkpointing/element_type.h"

namespace megatron {

/// Bytes [offset, offset + bytes) of a file of the checkpoint's directory: a complete file of torch.save.
struct StoredItem {
  std::string file;
  int64_t offset = 0, bytes = 0;
  bool operator==(const StoredItem&) const = default;
};

struct StoredChunk {
  Box box;  // its part of the global tensor
  StoredItem item;
  bool operator==(const StoredChunk&) const = default;
};

/// A tensor as the whole model has it, whatever ranks held parts of it, and the chunks that are stored.
struct GlobalTensor {
  ElementType type = ElementType::kFloat32;
  Shape shape;
  std::vector<StoredChunk> chunks;

  /// Nothing if the chunks cover each element exactly once, otherwise what is wrong.
  std::optional<std::string> tiling_problem() const;
  bool operator==(const GlobalTensor&) const = default;
};

struct CheckpointMetadata {
  std::map<std::string, GlobalTensor, std::less<>> tensors;
  std::map<std::string, StoredItem, std::less<>> objects;

  /// Adds what another rank has stored. @throw CheckpointError if the two disagree about shape or dtype of a tensor, or
  /// both have an object.
  void merge(const CheckpointMetadata& other);
  /// @throw CheckpointError, naming up to ten tensors, unless each is covered exactly once.
  void require_complete() const;
  bool operator==(const CheckpointMetadata&) const = default;
};

}  // namespace megatron
