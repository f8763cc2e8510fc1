// The folders that a run writes checkpoints to, and what --save holds before.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/training/config/checkpoint_config.h"

namespace megatron {

/// A folder that a run writes checkpoints to, as its flag gives it.
struct CheckpointFolder {
  std::string_view flag;
  std::string path;
};

/// The absolute path without symbolic links, also where the end of the path does not exist yet.
std::string resolved_path(const std::string& path);

/// --save, and where the flags give a folder for checkpoints that are not persistent, that one: by default these lie
/// in that of --save.
/// @throw ConfigError if both are one folder, also by a symbolic link: checkpoints that are not persistent replace each
///        other, and would remove the persistent ones.
std::vector<CheckpointFolder> checkpoint_folders_of(const CheckpointConfig& config);

/// The folder below --non-persistent-local-ckpt-dir that rank `rank` alone writes to.
std::string local_rank_folder(const CheckpointConfig& config, int rank);
/// The same with its flag; none if the run saves no local checkpoints.
std::optional<CheckpointFolder> local_folder_of(const CheckpointConfig& config, int rank);

/// A warning if --save has checkpoints of a run that this one does not continue by --load.
std::optional<std::string> warning_of_another_run(FileSystem& files, const CheckpointConfig& config);

}  // namespace megatron
