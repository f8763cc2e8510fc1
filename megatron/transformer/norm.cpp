#include "megatron/transformer/norm.h"

#include "megatron/ops/rms_norm.h"

namespace megatron {

Norm::Norm(const ModuleContext& context, int64_t size, NormPlace place)
    : kind_(context.config.normalization),
      options_{.eps = context.config.layernorm_epsilon,
               .zero_centered_gamma = context.config.layernorm_zero_centered_gamma} {
  ShardSpec shard = ShardSpec::whole({size});
  const bool sees_part = place == NormPlace::kAttentionHeads || context.sequence_parallel;
  if (sees_part && context.groups.tp.size() > 1) shard.grad_reduction = GradReduction::kSumOverTensor;
  register_parameter(weight_, context.ctx,
                     {.name = context.path + ".weight",
                      .shard = shard,
                      .dtype = context.config.params_dtype,
                      .init_constant = options_.zero_centered_gamma ? 0.0 : 1.0});
  if (kind_ == Normalization::kLayerNorm)
    register_parameter(bias_, context.ctx,
                       {.name = context.path + ".bias", .shard = shard, .dtype = context.config.params_dtype});
}

Tensor Norm::forward(Context& ctx, const Tensor& x) const {
  const PlaceScope place(ctx, weight_->module());
  return kind_ == Normalization::kLayerNorm ? layer_norm(ctx, x, *weight_, *bias_, options_)
                                            : rms_norm(ctx, x, weight_.get(), options_);
}

}  // namespace megatron
