// The state of Megatron's DistributedOptimizer in its default form (dp_reshardable): flat buckets for each tensor- and
// pipeline-parallel rank. They are presented as tensors of the whole model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/dist_checkpointing/checkpoint_metadata.h"

namespace megatron {

class CheckpointReader;

/// The keys of the form. Dense parameters and experts that have ranks of their own have an optimizer each; these are
/// chained, and their keys numbered: "chained_1.optimizer.distributed.dp_group_idx_0.".
namespace bucketed_keys {
/// @param chained  number of the optimizer in the chain; negative: there is one optimizer.
/// @param group  rank among the tensor- and pipeline-parallel ranks, for experts among the expert-tensor-, expert- and
/// pipeline-parallel ones.
std::string group(int chained, int64_t group);
/// The prefix of a bucket's keys; the name of a state follows it.
/// @param dtypes  Python's tuple of the dtypes of parameters and gradients: "(torch.bfloat16, torch.float32)"
std::string bucket(std::string_view group, size_t buffer, std::string_view dtypes, size_t bucket);
/// @param name  such as "per_bucket_numel"
std::string object(std::string_view group, std::string_view name);
/// Says whether the checkpoint holds an optimizer's state of this form.
bool are_in(const CheckpointMetadata& metadata);
/// Says whether several optimizers are chained.
bool are_chained(const CheckpointMetadata& metadata);
}  // namespace bucketed_keys

/// Finds parameters in buckets. The layers of a stage are those that fill its buckets, so the pipeline layout of the
/// run need not be known. Where no number of layers fits, there are no tensors.
class BucketedOptimizer {
 public:
  /// The places of the elements of a chunk, one after the other in one bucket.
  struct Source {
    std::string key;  ///< of the bucket
    int64_t first = 0;
  };

  BucketedOptimizer() = default;
  /// Does not throw for buckets that do not fit: problem() says why.
  explicit BucketedOptimizer(const CheckpointReader& reader);

  /// The tensors by the keys of the form fully_reshardable. Their chunks name no file.
  const std::map<std::string, GlobalTensor, std::less<>>& tensors() const { return tensors_; }
  const Source& source(std::string_view key, size_t chunk) const { return sources_.find(key)->second[chunk]; }
  /// Why tensors() is empty; empty if all is well.
  const std::string& problem() const { return problem_; }

 private:
  friend class BucketAssembly;
  std::map<std::string, GlobalTensor, std::less<>> tensors_;
  std::map<std::string, std::vector<Source>, std::less<>> sources_;  // of the chunks, in their order
  std::string problem_;
};

}  // namespace megatron
