// What Ctrl-C leaves behind, and how to go on.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/base/file_system.h"
#include "megatron/training/config/checkpoint_config.h"

namespace megatron {

/// "before the first iteration" or "after iteration 12". @param num_done iterations done; below 0: none was begun
std::string progress_text(int64_t num_done);

/// Says after which iteration training ended, which checkpoint is the newest, and how to go on from it.
std::string interruption_text(FileSystem& files, const CheckpointConfig& checkpoint, int64_t num_done);

}  // namespace megatron
