// The experts of a rank, computed by grouped matmuls over all of them. Megatron Core:
// core/transformer/moe/experts.py, TEGroupedMLP.
#pragma once

#include <memory>

#include "megatron/autograd/module.h"
#include "megatron/core/row_groups.h"
#include "megatron/ops/weighted_rows.h"
#include "megatron/transformer/module_context.h"
#include "megatron/transformer/moe/expert_share.h"

namespace megatron {

/// fc1, activation, fc2 of each expert. The weights of all experts are one parameter [experts, out, in], as Megatron's
/// checkpoints have them: "experts.experts.linear_fc1.weight". Ranks of the expert grid share them: each
/// expert-parallel rank has a run of the experts, each expert-tensor-parallel rank a part of f, so that the results of
/// these are summed.
class GroupedMlp : public Module {
 public:
  /// @throw ConfigError if experts or f do not divide by the ranks that share them, or for biases with expert tensor
  /// parallelism, as Megatron.
  GroupedMlp(const ModuleContext& context, const MoeConfig& config);
  /// @param rows [capacity, h], sorted by expert of this rank. @param probs [capacity]: the activation, and the bias of
  /// fc2, count with it (with apply_probs_on_input the input does). @return [capacity, h].
  Tensor forward(Context& ctx, const Tensor& rows, const RowGroups& groups, const Tensor& probs) const;

 private:
  ActivationChoice activation_;
  bool apply_probs_on_input_, recomputes_activation_;
  OffloadChoice offload_of_fc1_, offload_of_activation_;
  std::unique_ptr<Parameter> fc1_weight_, fc1_bias_, fc2_weight_, fc2_bias_;
};

}  // namespace megatron
