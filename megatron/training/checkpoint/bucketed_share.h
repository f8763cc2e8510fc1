// A rank's part of the optimizer's state in the default form of Megatron's DistributedOptimizer (dp_reshardable): flat
// buckets, which Megatron loads on the tensor- and pipeline-parallel sizes that wrote them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megatron/dist_checkpointing/rank_tensors.h"
#include "megatron/distributed/buffer_layout.h"
#include "megatron/training/checkpoint/checkpoint_share.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// How a run divides its model over Megatron's ranks.
ModelDivision division_of(const Trainer& trainer);

/// The part of the model that has these parameters, those of one stage.
StagePart stage_part_of(const std::vector<Parameter*>& parameters);

/// Adds buckets to a CheckpointShare. Not thread-safe.
class BucketedShare {
 public:
  /// Places this rank's parameters in the buckets that Megatron makes with the run's flags. `share` must outlive it.
  /// @throw NotSupported where Megatron's ranks hold other parts of a parameter than those of this run.
  BucketedShare(CheckpointShare& share, Trainer& trainer);

  /// Adds a state of the part of a parameter that this rank owns. @param name  Megatron's name of it in buckets
  void add(const OptimizerState& state, std::string_view name, const OptimizerTensor& value);
  /// Call it after the last add(): fills the gaps between parameters and adds the objects beside the buckets.
  void finish(Trainer& trainer);

 private:
  struct Buffer {
    std::string dtypes;
    BufferLayout layout;
  };
  /// The optimizer of dense parameters, or that of experts that have ranks of their own.
  struct OneOptimizer {
    std::string group;      // the beginning of its keys
    bool is_first = false;  // this rank is the first of those that share the state
    std::vector<Buffer> buffers;
  };
  /// A part of this rank's parameter that is a parameter of its own in Megatron, such as one expert.
  struct Piece {
    size_t optimizer = 0, buffer = 0, bucket = 0;
    int64_t begin = 0;  // in the bucket
    ElementRange in_parameter;
  };
  struct Member {
    const Parameter* parameter = nullptr;
    RankTensor tensor;
    ElementRange range;  // in the parameter
  };

  void add_chunk(Trainer& trainer, const std::vector<Parameter*>& parameters, int64_t chunk);
  Member member_of(const std::vector<Parameter*>& parameters, RankTensor tensor) const;
  void add_gaps(const OneOptimizer& optimizer) const;
  void add_objects(const OneOptimizer& optimizer, Trainer& trainer) const;

  CheckpointShare& share_;
  ModelDivision division_;
  std::vector<OneOptimizer> optimizers_;
  std::map<const Parameter*, std::vector<Piece>> pieces_;
  std::map<std::string, DType, std::less<>> states_;  // dtypes of the added states, by name
};

}  // namespace megatron
