// Checks the paths that a run writes to, before it begins.
#pragma once

#include "megatron/base/file_system.h"
#include "megatron/base/mistakes.h"
#include "megatron/training/checkpoint/save_folder.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// Missing folders of an output path are made, as Megatron-LM makes them, except directly below the root of the file
/// system: /dta/run is a mistyped path or a disk that is not mounted. All ranks write their parts of a checkpoint.
/// @param writes_logs  of rank 0
void check_output_folders(const PretrainConfig& config, const FileSystem& files, bool writes_logs, Mistakes& mistakes);

/// Makes the folders of checkpoints alone. @throw IoError that names the flag
void prepare_checkpoint_folders(const PretrainConfig& config, FileSystem& files);
void prepare_checkpoint_folder(const CheckpointFolder& folder, FileSystem& files);
/// Makes the folders that the outputs stand in, --save and --tensorboard-dir, so that what cannot be written fails
/// before the first step.
/// @throw IoError that names the flag
void prepare_outputs(const PretrainConfig& config, FileSystem& files, bool writes_logs);

}  // namespace megatron
