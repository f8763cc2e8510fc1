// Locks of the folders that a run writes checkpoints to.
#pragma once

#include <memory>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/comm/process_group.h"
#include "megatron/dist_checkpointing/save_lock.h"
#include "megatron/telemetry/progress.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// Makes and locks the folders of checkpoints before any rank writes there: rank 0 those of --save and
/// --non-persistent-global-ckpt-dir, each rank its own part of --non-persistent-local-ckpt-dir. All ranks call it.
/// @param ranks_are_threads  `world` holds rank 0 alone, and this process locks for all of its ranks
/// @return the locks that this process holds; none where the run saves nothing
/// @throw CheckpointError, naming the holder, if another run has one of the folders. IoError that names the flag
std::vector<std::unique_ptr<SaveLock>> lock_checkpoint_folders(const PretrainConfig& config, FileSystem& files,
                                                               Progress& progress, const ProcessGroup& world,
                                                               bool ranks_are_threads);

}  // namespace megatron
