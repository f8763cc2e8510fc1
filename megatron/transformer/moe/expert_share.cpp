#include "megatron/transformer/moe/expert_share.h"

#include "megatron/autograd/recompute.h"
#include "megatron/transformer/mlp.h"

namespace megatron {

ExpertShare ExpertShare::of(const ModuleContext& context, const MoeConfig& config) {
  const int ep = context.groups.ep.size(), etp = context.groups.expt_tp.size();
  require<ConfigError>(config.num_experts % ep == 0,
                       "[experts] {} experts do not divide by {} expert-parallel ranks: each rank has equally many. "
                       "Choose an --expert-model-parallel-size that divides --num-experts.",
                       config.num_experts, ep);
  require<ConfigError>(config.ffn_hidden_size % etp == 0,
                       "[experts] width {} does not divide by {} expert-tensor-parallel ranks: each rank has an equal "
                       "part. Choose an --expert-tensor-parallel-size that divides --moe-ffn-hidden-size.",
                       config.ffn_hidden_size, etp);
  require<ConfigError>(!context.config.add_bias_linear || etp == 1,
                       "[experts] biases of experts that {} expert-tensor-parallel ranks share would be added by each. "
                       "Give --disable-bias-linear or --expert-tensor-parallel-size 1.",
                       etp);
  const int64_t count = config.num_experts / ep;
  return {.first = context.groups.ep.rank() * count, .count = count};
}

namespace {

ShardSpec expert_shard(const Shape& shape, const std::optional<ExpertCut>& cut) {
  ShardSpec spec{.global_shape = shape, .cuts = {}, .grid = ShardGrid::kExpert};
  if (!cut) return spec;
  ShardCut of_width{.dim = cut->dim, .axis = ShardAxis::kExpertTensor, .sections = {}};
  of_width.sections.assign(static_cast<size_t>(cut->num_parts), {.size = shape[cut->dim] / cut->num_parts});
  spec.cuts.push_back(std::move(of_width));
  return spec;
}

}  // namespace

ShardSpec shard_of_experts(const Shape& shape, const std::optional<ExpertCut>& cut) {
  ShardSpec spec = expert_shard(shape, cut);
  spec.cuts.push_back({.dim = 0, .axis = ShardAxis::kExpert, .sections = {{.size = shape[0]}}});
  return spec;
}

ShardSpec shard_of_one_expert(const Shape& shape, const std::optional<ExpertCut>& cut) {
  ShardSpec spec = expert_shard(shape, cut);
  spec.is_of_one_expert_rank = true;
  return spec;
}

ActivationChoice expert_activation(const TransformerConfig& config) {
  ActivationChoice choice{.kind = kernel_of(config.activation_func), .is_gated = config.gated_linear_unit, .gate = {}};
  choice.gate.linear_offset = config.glu_linear_offset;
  if (config.activation_func_clamp_value) choice.gate.clamp = *config.activation_func_clamp_value;
  return choice;
}

Tensor expert_activation(Context& ctx, const Tensor& up, const Tensor& weights, const ActivationChoice& choice,
                         bool is_recomputed) {
  Tensor active = weighted_activation(ctx, up, weights, choice);
  if (is_recomputed)
    recompute_when_saved(ctx, active, up, [weights = weights.detach(), choice](Context& c, const Tensor& x) {
      return weighted_activation(c, x, weights, choice);
    });
  return active;
}

}  // namespace megatron
