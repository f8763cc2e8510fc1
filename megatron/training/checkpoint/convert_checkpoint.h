// A checkpoint in another form.
#pragma once

#include <string>

#include "megatron/base/file_system.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/telemetry/progress.h"

namespace megatron {

/// Writes a checkpoint of the form torch as one of the form torch_dist, which any layout loads: weights, optimizer,
/// schedule and progress. A piece of a tensor is in memory at a time.
/// @param save  folder of checkpoints, new or empty. @throw CheckpointError if it is not, or the checkpoint is of the
/// form torch_dist. @throw NotSupported if its optimizer cannot be read.
void convert_to_torch_dist(FileSystem& files, const CheckpointReader& reader, const std::string& save,
                           Progress& progress);

/// Writes the weights alone to safetensors files, under Megatron's names.
/// @param directory  new or empty.
void convert_to_safetensors(FileSystem& files, const CheckpointReader& reader, const std::string& directory,
                            int64_t max_shard_bytes, Progress& progress);

}  // namespace megatron
