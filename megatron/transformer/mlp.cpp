#include "megatron/transformer/mlp.h"

namespace megatron {

kernels::Activation kernel_of(ActivationFunc function) {
  switch (function) {
    case ActivationFunc::kGelu:
      return kernels::Activation::kGelu;
    case ActivationFunc::kGeluTanh:
      return kernels::Activation::kGeluTanh;
    case ActivationFunc::kQuickGelu:
      return kernels::Activation::kQuickGelu;
    case ActivationFunc::kSilu:
      return kernels::Activation::kSilu;
    case ActivationFunc::kSquaredRelu:
      return kernels::Activation::kSquaredRelu;
  }
  throw InternalError("[Mlp] unknown activation function");
}

Mlp::Mlp(const ModuleContext& context)
    : Mlp(context, {.ffn_hidden_size = context.config.ffn_hidden_size,
                    .gated_linear_unit = context.config.gated_linear_unit,
                    .activation_func = context.config.activation_func}) {}

Mlp::Mlp(const ModuleContext& context, const MlpOptions& mlp)
    : is_gated_(mlp.gated_linear_unit), activation_(kernel_of(mlp.activation_func)) {
  const TransformerConfig& config = context.config;
  gate_.linear_offset = config.glu_linear_offset;
  if (config.activation_func_clamp_value) gate_.clamp = *config.activation_func_clamp_value;
  const int64_t f = mlp.ffn_hidden_size;
  ShardCut rows{.sections = {{f, false}}};
  if (is_gated_) rows.sections.push_back({f, false});  // gate and up are cut each on its own
  ParallelLinearOptions options{.name = context.path + ".linear_fc1",
                                .stored = context.at("linear_fc1").stored,
                                .input_size = config.hidden_size,
                                .output = rows,
                                .bias = config.add_bias_linear,
                                .skip_bias_add = true,  // the activation adds it and sums its gradient on the way
                                .dtype = config.params_dtype,
                                .init_std = config.init_method_std,
                                .sequence_parallel = context.sequence_parallel,
                                .overlap = context.overlap};
  register_module(linear_fc1_, std::make_unique<ColumnParallelLinear>(context.ctx, options, context.groups.tp));
  options.name = context.path + ".linear_fc2";
  options.stored = context.at("linear_fc2").stored;
  options.input_size = f;
  options.output = {.sections = {{config.hidden_size, false}}};
  options.init_std = context.output_init_std();
  register_module(linear_fc2_, std::make_unique<RowParallelLinear>(context.ctx, options, context.groups.tp));
}

BlockOutput Mlp::forward(Context& ctx, const Tensor& x) const {
  const Tensor up = linear_fc1_->forward(ctx, x);
  Parameter* bias = linear_fc1_->bias();
  const Tensor activated =
      is_gated_ ? gated_activation(ctx, up, bias, activation_, gate_) : activation(ctx, up, bias, activation_);
  return {linear_fc2_->forward(ctx, activated), linear_fc2_->bias()};
}

}  // namespace megatron
