// The pickled form of CheckpointMetadata: objects of torch.distributed.checkpoint.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "megatron/dist_checkpointing/checkpoint_metadata.h"

namespace megatron {

/// Reads `.metadata`. `source` names it in errors.
/// @throw CheckpointError if it is damaged, inconsistent, or names a file outside of its directory.
/// @throw NotSupported for tensors that are stored transformed (compressed).
CheckpointMetadata parse_metadata(std::span<const std::byte> bytes, std::string_view source);

/// The bytes that torch.distributed.checkpoint and Megatron read. Equal metadata gives equal bytes.
std::string write_metadata(const CheckpointMetadata& metadata);

}  // namespace megatron
