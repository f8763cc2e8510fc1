// Checkpoints between the persistent ones, of which the newest alone is kept (--non-persistent-ckpt-type global).
#pragma once

#include <string>

#include "megatron/base/file_system.h"
#include "megatron/base/message_log.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/training/config/checkpoint_config.h"

namespace megatron {

/// @param root  of --save or --load.
std::string non_persistent_folder(const CheckpointConfig& config, const std::string& root);

/// The checkpoint to load: the persistent one of --load, or one that is not persistent, if it is not older.
/// @param persistent  of --load; no path if it holds none.
CheckpointDirectory::Found newer_non_persistent(FileSystem& files, const CheckpointConfig& config,
                                                CheckpointDirectory::Found persistent, const MessageLog& log);

}  // namespace megatron
