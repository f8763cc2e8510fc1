// Finds the checkpoint that a run loads.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "megatron/base/file_system.h"
#include "megatron/base/message_log.h"
#include "megatron/comm/process_group.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/training/config/checkpoint_config.h"

namespace megatron {

/// The checkpoint to load from the directory of `flag`; no path if the directory is empty.
CheckpointDirectory::Found find_checkpoint(FileSystem& files, std::string_view flag, const std::string& directory,
                                           const std::optional<int64_t>& step, const MessageLog& log);

/// Each rank looks for itself, so a --load that is not the same on all hosts would train a mixture of states.
void require_same_on_all_ranks(const ProcessGroup& world, const FileSystem& files,
                               const CheckpointDirectory::Found& found);

/// Before anything is read, so that no changed file gets so far as to be parsed.
void require_integrity(const FileSystem& files, const std::string& path);

/// A folder that was renamed by hand would continue another iteration than the requested one.
void require_own_iteration(const CheckpointDirectory::Found& found, const pickle::Object& state);

/// The checkpoint of --load, or a newer one that is not persistent; no path if there is none.
CheckpointDirectory::Found find_in_load(FileSystem& files, const CheckpointConfig& config, const MessageLog& log);

/// The checkpoint of --load, or else that of --pretrained-checkpoint. @throw CheckpointError if there is none.
CheckpointDirectory::Found find_existing(FileSystem& files, const CheckpointConfig& config);
CheckpointReader open_existing(FileSystem& files, const CheckpointConfig& config);

}  // namespace megatron
