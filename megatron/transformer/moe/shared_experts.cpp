#include "megatron/transformer/moe/shared_experts.h"

#include "megatron/ops/linear.h"
#include "megatron/ops/weighted_rows.h"

namespace megatron {

SharedExperts::SharedExperts(const ModuleContext& context, const MoeConfig& moe) {
  require<ConfigError>(!context.config.add_bias_linear,
                       "[SharedExperts] shared experts have no biases. Set add_bias_linear to false "
                       "(--disable-bias-linear).");
  const TransformerConfig& config = context.config;
  if (moe.shared_expert_gate) {
    ParameterOptions gate = context.parameter("gate_weight", context.whole({1, config.hidden_size}));
    gate.init_std = config.init_method_std;
    register_parameter(gate_weight_, context.ctx, std::move(gate));
  }
  const MlpOptions options{.ffn_hidden_size = moe.shared_expert_intermediate_size,
                           .gated_linear_unit = config.gated_linear_unit,
                           .activation_func = config.activation_func};
  register_module(mlp_, std::make_unique<Mlp>(context, options));
}

Tensor SharedExperts::forward(Context& ctx, const Tensor& x) const {
  Tensor y = mlp_->forward(ctx, x).output;
  if (!gate_weight_) return y;
  const int64_t h = x.size(-1), num_tokens = x.num_elements() / h;
  const Tensor logits = linear(ctx, x.reshape({num_tokens, h}), *gate_weight_, nullptr);
  const Tensor gate = activation(ctx, logits, nullptr, kernels::Activation::kSigmoid);
  return scale_rows(ctx, y.reshape({num_tokens, h}), gate.reshape({num_tokens})).reshape(x.shape());
}

}  // namespace megatron
