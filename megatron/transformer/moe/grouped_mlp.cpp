#include "megatron/transformer/moe/grouped_mlp.h"

#include "megatron/ops/grouped_linear.h"
#include "megatron/transformer/mlp.h"

namespace megatron {

ActivationChoice expert_activation(const ModuleContext& context) {
  const TransformerConfig& config = context.config;
  require<NotSupported>(context.groups.tp.size() == 1,
                        "[GroupedMlp] experts on {} tensor-parallel ranks are not supported. Choose one.",
                        context.groups.tp.size());
  ActivationChoice choice{.kind = kernel_of(config.activation_func), .is_gated = config.gated_linear_unit, .gate = {}};
  choice.gate.linear_offset = config.glu_linear_offset;
  if (config.activation_func_clamp_value) choice.gate.clamp = *config.activation_func_clamp_value;
  return choice;
}

GroupedMlp::GroupedMlp(const ModuleContext& context, const MoeConfig& moe)
    : activation_(expert_activation(context)), apply_probs_on_input_(moe.apply_probs_on_input) {
  const TransformerConfig& config = context.config;
  const auto add = [&](std::unique_ptr<Parameter>& slot, std::string_view name, const Shape& shape, double std,
                       WeightDecay decay) {
    ParameterOptions options = context.at("experts").parameter(name, ShardSpec::whole(shape));
    options.weight_decay = decay;
    options.init_std = std;
    register_parameter(slot, context.ctx, std::move(options));
  };
  const int64_t e = moe.num_experts, h = config.hidden_size, f = moe.ffn_hidden_size;
  const int64_t rows = config.gated_linear_unit ? 2 * f : f;
  add(fc1_weight_, "linear_fc1.weight", {e, rows, h}, config.init_method_std, WeightDecay::kUnlessVector);
  if (config.add_bias_linear) add(fc1_bias_, "linear_fc1.bias", {e, rows}, 0, WeightDecay::kNever);
  add(fc2_weight_, "linear_fc2.weight", {e, h, f}, context.output_init_std(), WeightDecay::kUnlessVector);
  if (config.add_bias_linear) add(fc2_bias_, "linear_fc2.bias", {e, h}, 0, WeightDecay::kNever);
}

Tensor GroupedMlp::forward(Context& ctx, const Tensor& rows, const RowGroups& groups, const Tensor& probs) const {
  const Tensor x = apply_probs_on_input_ ? scale_rows(ctx, rows, probs) : rows;
  const Tensor weights = apply_probs_on_input_ ? Tensor() : probs;
  Tensor up = grouped_linear(ctx, x, groups, *fc1_weight_);
  if (fc1_bias_) up = grouped_bias(ctx, up, groups, *fc1_bias_, {});
  const Tensor active = weighted_activation(ctx, up, weights, activation_);
  const Tensor down = grouped_linear(ctx, active, groups, *fc2_weight_);
  if (!fc2_bias_) return down;
  return grouped_bias(ctx, down, groups, *fc2_bias_, weights);
}

}  // namespace megatron
