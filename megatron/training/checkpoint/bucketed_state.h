// The optimizer's state as Megatron's DistributedOptimizer stores it by default (dp_reshardable): its flat buckets,
// which fit one tensor- and pipeline-parallel size and any number of data-parallel ranks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/training/checkpoint/checkpoint_layout.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// Whether a weight can be this main parameter, rounded to the weight's dtype in any way.
bool is_rounded(double weight, double main_param, DType dtype);

/// Finds the parameters of this rank in the buckets of the rank of Megatron that had the same ones.
/// Parameters lie in reverse order of their registration in Megatron's model, which depends on --transformer-impl, each
/// at a multiple of 64 elements of its bucket.
class BucketedState {
 public:
  /// Whether the optimizer's state of a checkpoint is stored so.
  static bool is_in(const CheckpointReader& reader);
  /// @throw CheckpointError if the sizes of the ranks or of the buckets are not those of this run.
  BucketedState(const CheckpointReader& reader, Trainer& trainer);

  /// The placement of the part of a parameter that one of the optimizer's states() updates.
  /// @param name  "param", "exp_avg" or "exp_avg_sq".
  CheckpointPlacement placement_of(const OptimizerState& state, std::string_view name) const;
  /// Compares main parameters with the weights that the checkpoint has beside them: a wrong order would show.
  /// @throw CheckpointError if a weight is not its main parameter, rounded.
  void require_fits_weights(Trainer& trainer) const;

  /// "param_groups" of all parameters, or the loss scale: an object of the first pipeline and tensor rank.
  static std::string object_key(std::string_view name);

 private:
  struct Slot {
    size_t bucket = 0;
    int64_t begin = 0;  // in the bucket
  };

  const CheckpointReader& reader_;
  std::string prefix_;                 // up to the number of the bucket
  std::vector<int64_t> bucket_sizes_;  // without padding at the end
  std::map<const Parameter*, Slot> slots_;
};

}  // namespace megatron
