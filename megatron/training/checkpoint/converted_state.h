// The state of a checkpoint that is no tensor, for a checkpoint in another form or for another layout of ranks.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "megatron/dist_checkpointing/checkpoint_reader.h"

namespace megatron {

/// How a checkpoint holds the tensors of an optimizer's state.
enum class OptimizerForm {
  kNone,
  kReplicated,        ///< whole tensors of an optimizer that is whole on each data-parallel rank
  kFullyReshardable,  ///< whole tensors of a distributed optimizer
  kDpReshardable      ///< flat buckets of a distributed optimizer (BucketedOptimizer)
};
/// "none", "not distributed", "fully_reshardable", "dp_reshardable"
std::string_view name_of(OptimizerForm form);
OptimizerForm optimizer_form_of(const CheckpointMetadata& metadata);

/// Parameter groups, numbers of steps and loss scale of a stored optimizer, or of each one of a chain.
class StoredOptimizer {
 public:
  /// @param reader  must outlive the object. Its checkpoint holds an optimizer.
  explicit StoredOptimizer(const CheckpointReader& reader);
  StoredOptimizer(const StoredOptimizer&) = delete;
  StoredOptimizer& operator=(const StoredOptimizer&) = delete;
  size_t size() const { return all_.size(); }

  /// The entry of the common state. @param num_optimizers  in the chain: 2 where experts have an optimizer of their own
  pickle::Object& make(TorchObject& object, OptimizerForm form, size_t num_optimizers) const;
  /// The objects beside the buckets of the form dp_reshardable. @param number  of the optimizer in the chain
  TorchObject make_groups(size_t number, size_t num_optimizers) const;
  /// Nothing without a dynamic loss scale.
  std::optional<TorchObject> make_scaler(size_t number) const;
  /// The entry of a file of the form torch, for its writer to complete: the dict, the one within, which FP32Optimizer
  /// has alone, and the groups.
  struct Legacy {
    pickle::Object *outer = nullptr, *inner = nullptr;
    std::vector<pickle::Object*> groups;
    int64_t num_steps = 0;
    bool has_common_step = false;
  };
  Legacy make_legacy(TorchObject& object, size_t number, size_t num_optimizers) const;

 private:
  struct One {
    const TorchFile* file = nullptr;  // has the tensors of `inner`
    const TorchFile* scaler_file = nullptr;
    const pickle::Object *inner = nullptr, *scaler = nullptr;
    bool is_nested = false;  // FP32Optimizer has no dict around the inner one
    int64_t num_steps = 0;
    bool has_common_step = false;
  };
  void add_bucketed(const CheckpointReader& reader);
  const One& one(size_t number) const { return all_[std::min(number, all_.size() - 1)]; }
  std::vector<pickle::Object*> make_groups(TorchObject& object, size_t number, size_t num_optimizers) const;
  pickle::Object& make_inner(TorchObject& object, OptimizerForm form, size_t number, size_t num_optimizers) const;
  pickle::Object& make_scaler(TorchObject& object, const One& one) const;
  pickle::Object& make_one(TorchObject& object, OptimizerForm form, size_t number, size_t num_optimizers) const;

  CheckpointReader::CommonState common_;
  std::deque<TorchFile> files_;  // of objects beside buckets
  std::vector<One> all_;
};

/// The common state of a checkpoint of any form, as torch_dist has it. @param optimizer  null: without
/// @param change_arguments  of the run; may be empty.
TorchObject converted_common_state(
    const CheckpointReader& reader, const StoredOptimizer* optimizer, OptimizerForm form, size_t num_optimizers,
    const std::function<void(pickle::Graph&, pickle::Object& arguments)>& change_arguments);

/// A file's object with its tensors.
TorchObject copy_of(TorchFile file);

}  // namespace megatron
