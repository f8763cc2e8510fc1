// A trainer on all its ranks, reduced to the memory of the host: what is left when its grid goes.
#pragma once

#include <cstdint>

#include "megatron/base/host_memory_files.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// A checkpoint that never leaves the process: global tensors, optimizer state, progress (the data position with it)
/// and schedule. What one grid of ranks was reduced to, a trainer on any other goes on from. Ranks are threads of one
/// process and share one snapshot. Example, from four replicas to three:
///   TrainerSnapshot snapshot;
///   run_rank_threads(four, [&](World& world) { ... snapshot.take(trainer); });      // trainers end here
///   run_rank_threads(three, [&](World& world) { Trainer trainer(...); snapshot.restore(trainer); ... });
class TrainerSnapshot {
 public:
  /// All ranks of the trainer call it. Replaces an older snapshot when all have written; one that fails leaves it.
  void take(Trainer& trainer);
  /// Into a trainer of the same model that has just been built; all its ranks call it. The checkpoint flags of its
  /// configuration (--finetune, --no-load-optim) do not count here.
  /// @throw CheckpointError if nothing was taken or the model differs.
  void restore(Trainer& trainer);

  /// The host memory that it takes. While one snapshot replaces another, both exist.
  int64_t bytes() const { return files_.total_bytes(); }

 private:
  HostMemoryFiles files_;
};

}  // namespace megatron
