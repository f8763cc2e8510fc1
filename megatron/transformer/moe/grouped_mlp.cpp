#include "megatron/transformer/moe/grouped_mlp.h"

#include <optional>

#include "megatron/ops/grouped_linear.h"
#include "megatron/ops/weighted_rows.h"

namespace megatron {

GroupedMlp::GroupedMlp(const ModuleContext& context, const MoeConfig& moe)
    : activation_(expert_activation(context.config)),
      apply_probs_on_input_(moe.apply_probs_on_input),
      recomputes_activation_(context.config.recomputes(RecomputeModule::kMoeAct)),
      offload_of_fc1_(context.config.offload_of(OffloadModule::kExpertFc1)),
      offload_of_activation_(context.config.offload_of(OffloadModule::kMoeAct)) {
  ExpertShare::of(context, moe);  // throws what cannot be shared
  const TransformerConfig& config = context.config;
  const auto add = [&](std::unique_ptr<Parameter>& slot, std::string_view name, const Shape& shape,
                       const std::optional<ExpertCut>& cut, double std, WeightDecay decay) {
    ParameterOptions options = context.at("experts").parameter(name, shard_of_experts(shape, cut));
    options.weight_decay = decay;
    options.init_std = std;
    register_parameter(slot, context.ctx, std::move(options));
  };
  const int64_t e = moe.num_experts, h = config.hidden_size, f = moe.ffn_hidden_size;
  const int64_t num_parts = config.gated_linear_unit ? 2 : 1;
  const ExpertCut rows{.dim = 1, .num_parts = num_parts}, columns{.dim = 2};
  add(fc1_weight_, "linear_fc1.weight", {e, num_parts * f, h}, rows, config.init_method_std,
      WeightDecay::kUnlessVector);
  if (config.add_bias_linear) add(fc1_bias_, "linear_fc1.bias", {e, num_parts * f}, rows, 0, WeightDecay::kNever);
  add(fc2_weight_, "linear_fc2.weight", {e, h, f}, columns, context.output_init_std(), WeightDecay::kUnlessVector);
  if (config.add_bias_linear) add(fc2_bias_, "linear_fc2.bias", {e, h}, std::nullopt, 0, WeightDecay::kNever);
}

Tensor GroupedMlp::forward(Context& ctx, const Tensor& rows, const RowGroups& groups, const Tensor& probs) const {
  const Tensor x = apply_probs_on_input_ ? scale_rows(ctx, rows, probs) : rows;
  const Tensor weights = apply_probs_on_input_ ? Tensor() : probs;
  std::optional<OffloadScope> scope(std::in_place, ctx, offload_of_fc1_);
  Tensor up = grouped_linear(ctx, x, groups, *fc1_weight_);
  scope.reset();
  if (fc1_bias_) up = grouped_bias(ctx, up, groups, *fc1_bias_, {});
  scope.emplace(ctx, offload_of_activation_);
  const Tensor active = expert_activation(ctx, up, weights, activation_, recomputes_activation_);
  scope.reset();
  Tensor down = grouped_linear(ctx, active, groups, *fc2_weight_);
  if (!fc2_bias_) return down;
  return grouped_bias(ctx, down, groups, *fc2_bias_, weights);
}

}  // namespace megatron
