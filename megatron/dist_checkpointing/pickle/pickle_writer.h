// Writes object graphs as Python's pickler writes them.
#pragma once

#include <string>

#include "megatron/dist_checkpointing/pickle/pickle_object.h"

namespace megatron::pickle {

/// Protocol 2 is what torch.save uses, protocol 4 what `.metadata` uses.
enum class Protocol : uint8_t { kTwo = 2, kFour = 4 };

/// The bytes that Python's pickle.dumps gives for the same objects, with equal sharing (an object that is referred to
/// twice is written once); above 64 KiB in protocol 4 they differ in the division into frames.
/// @throw CheckpointError if objects are nested more than 1000 deep, or a tuple contains itself.
/// @throw NotSupported for bytes and sets in protocol 2, which has no opcodes for them.
std::string write_pickle(const Object& root, Protocol protocol);

}  // namespace megatron::pickle
