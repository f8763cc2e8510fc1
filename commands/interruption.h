// The message after Ctrl-C: the newest checkpoint and how to resume.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/base/file_system.h"
#include "megatron/training/config/checkpoint_config.h"

namespace megatron {

/// "before the first iteration" or "after iteration 12". @param num_done iterations completed; below 0: none has begun
std::string progress_text(int64_t num_done);

/// Names the iteration after which training ended, the newest checkpoint, and how to resume from it.
std::string interruption_text(FileSystem& files, const CheckpointConfig& checkpoint, int64_t num_done);

}  // namespace megatron
