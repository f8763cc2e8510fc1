// From a folder of a Hugging Face model to a checkpoint that training and generation load.
#pragma once

#include <string>

#include "megatron/base/file_system.h"
#include "megatron/telemetry/progress.h"

namespace megatron {

/// Writes the model as iteration 0 of the checkpoints below `save`. In memory are the tensor that is
/// written and those that ReadAhead reads.
/// @throw CheckpointError if `save` has checkpoints already, and as HuggingFaceWeights and read_hugging_face_model.
void import_hugging_face(FileSystem& files, const std::string& directory, const std::string& save, Progress& progress);

}  // namespace megatron
