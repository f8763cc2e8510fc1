#include "megatron/training/checkpoint/snapshot.h"

#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/training/checkpoint/checkpointer.h"

namespace megatron {
namespace {

constexpr const char* kSnapshotRoot = "snapshot";

/// The trainer's configuration with everything saved and loaded.
PretrainConfig config_of(const Trainer& trainer) {
  PretrainConfig config = trainer.config();
  config.checkpoint = {};
  config.checkpoint.save = config.checkpoint.load = kSnapshotRoot;
  config.checkpoint.no_save_rng = true;
  return config;
}

}  // namespace

void TrainerSnapshot::take(Trainer& trainer) {
  const bool is_first = trainer.groups().world.rank() == 0;
  if (is_first) files_.create_directories(kSnapshotRoot);
  Checkpointer(files_, config_of(trainer), {}).save(trainer);
  if (!is_first) return;
  const std::string newest = CheckpointDirectory(files_, kSnapshotRoot).path(trainer.progress().iteration);
  for (const DirectoryEntry& entry : files_.list(kSnapshotRoot)) {
    const std::string path = join_path(kSnapshotRoot, entry.name);
    if (entry.type == EntryType::kDirectory && path != newest) files_.remove(path);
  }
}

void TrainerSnapshot::restore(Trainer& trainer) {
  const bool is_loaded = Checkpointer(files_, config_of(trainer), {}).load(trainer);
  require<CheckpointError>(is_loaded, "[snapshot] there is none: all ranks of a trainer must have called take().");
}

}  // namespace megatron
