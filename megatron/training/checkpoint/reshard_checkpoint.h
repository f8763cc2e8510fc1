// A checkpoint as the ranks of another layout would have written it.
#pragma once

#include <optional>
#include <string>

#include "megatron/base/file_system.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/telemetry/progress.h"
#include "megatron/training/checkpoint/converted_state.h"
#include "megatron/training/checkpoint/target_layout.h"

namespace megatron {

struct ReshardOptions {
  LayoutRequest layout;
  /// The form of a distributed optimizer's state; nothing: as it is stored.
  std::optional<OptimizerForm> optimizer_form;
};

/// Writes a checkpoint of any form as torch_dist for a layout: a file for each rank with what that rank would save, the
/// optimizer's buckets (dp_reshardable) of its tensor- and pipeline-parallel ranks, the sizes of the layout among the
/// stored arguments, and the states of generators with which Megatron starts on it. A piece of a tensor is in memory at
/// a time.
/// @param save  folder of checkpoints, new or empty.
/// @return the layout.
/// @throw CheckpointError if `save` is neither, or the model cannot be divided so. @throw NotSupported if the
/// optimizer's state cannot be read, or has no such form.
TargetLayout reshard_checkpoint(FileSystem& files, const CheckpointReader& reader, const std::string& save,
                                const ReshardOptions& options, Progress& progress);

/// Copies what a checkpoint carries beside tensors and objects: its tokenizer, and the configuration of a model that
/// was imported. @param from, to  folders of one checkpoint each
void copy_companions(FileSystem& files, const std::string& from, const std::string& to);
/// @throw CheckpointError if a folder to write to holds something.
void require_new_folder(const FileSystem& files, const std::string& directory);

}  // namespace megatron
