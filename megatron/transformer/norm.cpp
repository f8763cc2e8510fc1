#include "megatron/transformer/norm.h"

#include <utility>

#include "megatron/ops/rms_norm.h"

namespace megatron {

Norm::Norm(const ModuleContext& context, int64_t size, NormPlace place)
    : kind_(context.config.normalization),
      options_{.eps = context.config.layernorm_epsilon,
               .zero_centered_gamma = context.config.layernorm_zero_centered_gamma} {
  ShardSpec shard = ShardSpec::whole({size});
  const bool sees_part =
      place == NormPlace::kAttentionHeads || (context.sequence_parallel && place != NormPlace::kAllHeads);
  if (sees_part && context.groups.tp.size() > 1) shard.grad_reduction = GradReduction::kSumOverTensor;
  const auto add = [&](std::unique_ptr<Parameter>& slot, std::string_view name, double initial) {
    ParameterOptions options = context.parameter(name, shard);
    if (place != NormPlace::kResidualStream) options.weight_decay = WeightDecay::kIfQueryKeyNorm;
    options.init_constant = initial;
    register_parameter(slot, context.ctx, std::move(options));
  };
  add(weight_, "weight", options_.zero_centered_gamma ? 0.0 : 1.0);
  if (kind_ == Normalization::kLayerNorm) add(bias_, "bias", 0);
}

Tensor Norm::forward(Context& ctx, const Tensor& x) const {
  const PlaceScope place(ctx, weight_->module());
  return kind_ == Normalization::kLayerNorm ? layer_norm(ctx, x, *weight_, *bias_, options_)
                                            : rms_norm(ctx, x, weight_.get(), options_);
}

}  // namespace megatron
