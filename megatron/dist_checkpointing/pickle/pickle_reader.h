// Reads pickles without running anything.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "megatron/dist_checkpointing/pickle/pickle_object.h"

namespace megatron::pickle {

struct Pickle {
  Graph graph;
  Object* root = nullptr;  // lives in graph
};

/// Reads a pickle of protocol 0 to 5. Names, calls and constructions stay data, so a hostile file can do nothing but be
/// refused; memory is bounded by a small multiple of the file's size. `source` names the file in errors.
/// @throw CheckpointError with the byte offset if it is damaged, cut, or uses what torch and Megatron never write
/// (extension codes, out-of-band buffers, Python 2 classes).
Pickle read_pickle(std::span<const std::byte> bytes, std::string_view source);

}  // namespace megatron::pickle
