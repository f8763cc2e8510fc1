#include "megatron/transformer/moe/moe_layer.h"

#include <cmath>

#include "megatron/autograd/recompute.h"
#include "megatron/ops/add.h"
#include "megatron/ops/linear.h"

namespace megatron {

MoeLayer::MoeLayer(const ModuleContext& context, const MoeConfig& config)
    : config_(config),
      recomputes_shared_experts_(context.config.recomputes(RecomputeModule::kSharedExperts)),
      dispatcher_(make_token_dispatcher(context.groups, config)) {
  require<ConfigError>(context.groups.tp.size() == 1 || context.sequence_parallel,
                       "[MoeLayer] {} tensor-parallel ranks without sequence parallelism would each route all tokens. "
                       "Give --sequence-parallel.",
                       context.groups.tp.size());
  register_module(router_, std::make_unique<TopKRouter>(context.at("router"), config));
  if (!config.latent_size) {
    register_experts(context);
  } else {
    const int64_t h = context.config.hidden_size, latent = *config.latent_size;
    const double down_std = context.config.init_method_std, up_std = context.output_init_std();
    const bool has_bias = context.config.add_bias_linear;
    register_latent(fc1_latent_weight_, context, "fc1_latent_proj.weight", {latent, h}, down_std);
    if (has_bias) register_latent(fc1_latent_bias_, context, "fc1_latent_proj.bias", {latent}, 0);
    register_latent(fc2_latent_weight_, context, "fc2_latent_proj.weight", {h, latent}, up_std);
    if (has_bias) register_latent(fc2_latent_bias_, context, "fc2_latent_proj.bias", {h}, 0);
    TransformerConfig narrow = context.config;
    narrow.hidden_size = latent;
    register_experts({.ctx = context.ctx,
                      .config = narrow,
                      .groups = context.groups,
                      .path = context.path,
                      .sequence_parallel = context.sequence_parallel,
                      .overlap = context.overlap,
                      .stored = context.stored});
  }
  if (config.shared_expert_intermediate_size > 0)
    register_module(shared_experts_, std::make_unique<SharedExperts>(context.at("shared_experts"), config));
}

void MoeLayer::register_experts(const ModuleContext& context) {
  if (config_.grouped_gemm)
    register_module(experts_, std::make_unique<GroupedMlp>(context.at("experts"), config_));
  else
    register_module(sequential_experts_, std::make_unique<SequentialMlp>(context.at("experts"), config_));
}

Parameter& MoeLayer::register_latent(std::unique_ptr<Parameter>& slot, const ModuleContext& context,
                                     std::string_view name, const Shape& shape, double init_std) {
  ParameterOptions options = context.parameter(name, context.whole(shape));
  options.init_std = init_std;
  return register_parameter(slot, context.ctx, std::move(options));
}

/// Without a capacity, and with padding to it, the number of rows is known if the rank has all experts.
PermutationOptions MoeLayer::permutation_options(int64_t num_tokens, const DispatchedTokens& dispatched,
                                                 const std::optional<double>& capacity_factor) const {
  const int64_t e = config_.num_experts, own = dispatched.routing.map.size(1), sources = dispatched.num_sources;
  const int64_t topk = std::min(config_.topk.topk, own), rows = dispatched.tokens.size(0) / sources;
  const bool is_padded = config_.pad_expert_input_to_multiple > 0 || config_.pad_expert_input_to_capacity;
  PermutationOptions options{.capacity = sources * rows * topk,
                             .max_experts_per_token = is_padded ? own : topk,
                             .is_exact = own == e && rows == num_tokens};
  if (const int64_t multiple = config_.pad_expert_input_to_multiple; multiple > 0) {
    options.capacity = sources * std::min(rows * topk + own * (multiple - 1), rows * own);
    options.is_exact = false;
  } else if (config_.expert_capacity_factor) {
    const int64_t of_expert = std::min(
        num_tokens, kernels::expert_capacity(num_tokens, config_.topk.topk, e, *config_.expert_capacity_factor));
    const int64_t of_source = of_expert * own;
    options.capacity = sources * (config_.pad_expert_input_to_capacity ? of_source : std::min(rows * topk, of_source));
    options.is_exact = config_.pad_expert_input_to_capacity && rows == num_tokens;
  }
  if (!capacity_factor || own == e) return options;
  const double balanced = static_cast<double>(sources * num_tokens * config_.topk.topk * own) / static_cast<double>(e);
  const auto bound = static_cast<int64_t>(std::ceil(balanced * *capacity_factor));
  if (bound >= options.capacity) return options;
  options.capacity = bound;
  options.is_exact = false;
  return options;
}

Tensor MoeLayer::expert_output(Context& ctx, int64_t num_tokens, const DispatchedTokens& dispatched,
                               const std::optional<double>& capacity_factor) const {
  const Routing& routing = dispatched.routing;
  if (sequential_experts_) return sequential_experts_->forward(ctx, dispatched.tokens, routing);
  const Permutation permutation =
      sort_by_expert(ctx, routing.map, permutation_options(num_tokens, dispatched, capacity_factor));
  const Tensor probs = permute_probs(ctx, routing.probs, permutation);
  const Tensor rows = permute(ctx, dispatched.tokens, permutation);
  return unpermute(ctx, experts_->forward(ctx, rows, permutation.groups, probs), permutation);
}

Tensor MoeLayer::routed_output(Context& ctx, const Tensor& tokens, const Routing& routing) const {
  const int64_t t = tokens.size(0);
  if (!dispatcher_) return expert_output(ctx, t, {.tokens = tokens, .routing = routing, .sections = {}}, std::nullopt);
  std::optional<double> capacity_factor;
  if (is_bounded_ && ctx.is_training()) capacity_factor = config_.expert_rank_capacity_factor;
  const DispatchedTokens dispatched = dispatcher_->dispatch(ctx, tokens, routing, capacity_factor);
  return dispatcher_->combine(ctx, expert_output(ctx, t, dispatched, capacity_factor), dispatched);
}

Tensor MoeLayer::shared_output(Context& ctx, const Tensor& x) const {
  if (!recomputes_shared_experts_) return shared_experts_->forward(ctx, x);
  const auto function = [this](Context& c, const Payload& in) {
    return Payload{{"output", shared_experts_->forward(c, at(in, "x"))}};
  };
  return at(recompute(ctx, {{"x", x}}, function), "output");
}

MoeOutput MoeLayer::forward(Context& ctx, const Tensor& x, const RouterInputs& inputs) const {
  RouterOutput routed = router_->forward(ctx, x, inputs);
  const int64_t h = x.size(-1);
  Tensor tokens = x.reshape({x.num_elements() / h, h});
  if (fc1_latent_weight_) tokens = linear(ctx, tokens, *fc1_latent_weight_, fc1_latent_bias_.get());
  Tensor output = routed_output(ctx, tokens, routed.routing);
  if (fc2_latent_weight_) output = linear(ctx, output, *fc2_latent_weight_, fc2_latent_bias_.get());
  output = output.reshape(x.shape());
  if (shared_experts_) output = add(ctx, output, shared_output(ctx, x));
  return {output, std::move(routed.losses), std::move(routed.tokens_per_expert)};
}

}  // namespace megatron
