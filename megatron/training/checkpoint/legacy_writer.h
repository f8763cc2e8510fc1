// Writes weights in Megatron's form torch, for programs that read nothing else.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/base/file_system.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/telemetry/progress.h"

namespace megatron {

struct LegacyLayout {
  int64_t tensor_parallel_size = 1, pipeline_parallel_size = 1;
};

/// Writes the weights of a checkpoint of any form, without the optimizer, as Megatron's tools/checkpoint/convert.py
/// does: a file model_optim_rng.pt for each tensor- and pipeline-parallel rank, with the names of its modules. Layers
/// are divided evenly over the stages, all experts are on each.
/// @param save  folder of checkpoints, new or empty.
/// @throw CheckpointError if it is not, or a tensor cannot be cut so. @throw NotSupported for multi-token prediction.
void write_legacy_weights(FileSystem& files, const CheckpointReader& reader, const std::string& save,
                          const LegacyLayout& layout, Progress& progress);

}  // namespace megatron
