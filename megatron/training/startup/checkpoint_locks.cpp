#include "megatron/training/startup/checkpoint_locks.h"

#include "megatron/training/checkpoint/save_folder.h"
#include "megatron/training/startup/output_paths.h"

namespace megatron {

std::vector<std::unique_ptr<SaveLock>> lock_checkpoint_folders(const PretrainConfig& config, FileSystem& files,
                                                               Progress& progress, const ProcessGroup& world,
                                                               bool ranks_are_threads) {
  std::vector<std::unique_ptr<SaveLock>> locks;
  if (!config.checkpoint.save || config.validation.skip_train) return locks;
  const auto lock = [&](const CheckpointFolder& folder) {
    locks.push_back(std::make_unique<SaveLock>(
        files, folder.path,
        SaveLock::Options{.flag = std::string(folder.flag), .takes_over = config.checkpoint.take_over_save_lock}));
    if (const std::string& note = locks.back()->note(); !note.empty()) progress.message(note);
  };
  if (world.rank() == 0) {
    prepare_checkpoint_folders(config, files);
    for (const CheckpointFolder& folder : checkpoint_folders_of(config.checkpoint)) lock(folder);
  }
  world.barrier({.site = "lock of --save"}).wait();
  const int first = world.rank();
  const int end = ranks_are_threads ? static_cast<int>(config.parallel.world_size) : first + 1;
  for (int rank = first; rank < end; ++rank)
    if (const auto folder = local_folder_of(config.checkpoint, rank)) {
      prepare_checkpoint_folder(*folder, files);
      lock(*folder);
    }
  world.barrier({.site = "lock of --non-persistent-local-ckpt-dir"}).wait();
  return locks;
}

}  // namespace megatron
