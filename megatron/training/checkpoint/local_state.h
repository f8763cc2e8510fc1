// The state of one rank in a local checkpoint: its shards as flat tensors, which only the same layout can read.
#pragma once

#include <string>
#include <vector>

#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/training/checkpoint/checkpoint_load.h"
#include "megatron/training/checkpoint/optimizer_tensors.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// Lists, stores and reads the weights, the optimizer state and the progress of this rank.
class LocalState {
 public:
  /// @param trainer  must outlive the object. With its --non-persistent-local-ckpt-algo fully_parallel each tensor that
  ///        data-parallel ranks replicate is stored by one of them, with atomic by all.
  explicit LocalState(Trainer& trainer);

  /// Adds what this rank stores.
  void add_to(CheckpointWriter& writer) const;
  /// Reads the tensors that this rank has stored; with fully_parallel ranks broadcast theirs, so all must call it.
  /// Progress and learning-rate schedule are left to the caller.
  void read_from(const CheckpointReader& reader) const;
  /// The run, the layout and this rank's tensors, one line each: a local checkpoint loads only where all lines are
  /// equal.
  /// @param folder  of the run's checkpoints: --save on saving, --load on loading
  std::string layout(const std::string& folder) const;

 private:
  struct LocalTensor {
    const Parameter* parameter;
    std::string key;
    Shape shape;  // flat
    OptimizerTensor value;
  };
  /// Tensors that each rank stores for itself, or that replicas share: one of them stores each.
  struct Tensors {
    bool is_shared = false;
    std::vector<LocalTensor> all;
  };
  void add(CheckpointWriter& writer, const Tensors& tensors) const;
  void read_tensors(const CheckpointReader& reader, const Tensors& tensors) const;

  Trainer& trainer_;
  Tensors weights_, optimizer_;
};

}  // namespace megatron
