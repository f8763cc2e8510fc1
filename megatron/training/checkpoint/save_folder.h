// What the folder of --save holds before a run writes to it.
#pragma once

#include <optional>
#include <string>

#include "megatron/base/file_system.h"
#include "megatron/training/config/checkpoint_config.h"

namespace megatron {

/// What is to be said of a --save that has checkpoints of a run which this one does not go on with by --load.
std::optional<std::string> warning_of_another_run(FileSystem& files, const CheckpointConfig& config);

}  // namespace megatron
