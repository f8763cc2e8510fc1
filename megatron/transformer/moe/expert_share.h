// How ranks share the experts of a layer.
#pragma once

#include "megatron/ops/weighted_activation.h"
#include "megatron/transformer/module_context.h"
#include "megatron/transformer/moe/moe_config.h"

namespace megatron {

/// The experts of this rank. Each expert-parallel rank has a contiguous range of the experts, and each
/// expert-tensor-parallel rank has a part of their width f.
struct ExpertShare {
  int64_t first = 0, count = 0;

  /// @throw ConfigError if experts or f do not divide by the ranks, or, as in Megatron, for biases of experts that
  /// several expert-tensor-parallel ranks share.
  static ExpertShare of(const ModuleContext& context, const MoeConfig& config);
};

/// The shard of experts' matrices whose dimension `dim` is cut over expert tensor parallelism.
struct ExpertCut {
  int dim = 0;
  int64_t num_parts = 1;  ///< equal parts of the dimension that are cut each on its own: gate and up
};
/// A parameter [e, ...] of all experts of a layer.
ShardSpec shard_of_experts(const Shape& shape, const std::optional<ExpertCut>& cut);
/// A parameter of one expert, which one expert-parallel rank holds.
ShardSpec shard_of_one_expert(const Shape& shape, const std::optional<ExpertCut>& cut);

/// Which activation experts have.
ActivationChoice expert_activation(const TransformerConfig& config);
/// The same of rows. @param is_recomputed  the matmul behind it saves `up` and computes the activation again.
Tensor expert_activation(Context& ctx, const Tensor& up, const Tensor& weights, const ActivationChoice& choice,
                         bool is_recomputed);

}  // namespace megatron
