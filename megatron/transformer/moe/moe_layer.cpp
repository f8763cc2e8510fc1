#include "megatron/transformer/moe/moe_layer.h"

#include <cmath>

#include "megatron/autograd/recompute.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/ops/add.h"
#include "megatron/ops/linear.h"

namespace megatron {
namespace {

/// A map of the tokens [begin, end) alone, of the same shape.
Tensor rows_of_map(const Context& ctx, const Tensor& map, int64_t begin, int64_t end) {
  Tensor part = ctx.empty_like("routing.map_of_round", map);
  launch(ctx, {.name = "fill"}, [&](auto& stream) {
    kernels::fill(stream, {.y = part.view()});
    kernels::copy(stream,
                  {.x = map.slice(0, begin, end - begin).view(), .y = part.slice(0, begin, end - begin).view()});
  });
  return part;
}

}  // namespace

MoeLayer::MoeLayer(const ModuleContext& context, const MoeConfig& config)
    : config_(config),
      recomputes_shared_experts_(context.config.recomputes(RecomputeModule::kSharedExperts)),
      dispatcher_(context.replicates_tokens ? make_replicated_token_dispatcher(context.groups)
                                            : make_token_dispatcher(context.groups, config)) {
  require<ConfigError>(context.groups.tp.size() == 1 || context.sequence_parallel || context.replicates_tokens,
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
                      .stored = context.stored,
                      .replicates_tokens = context.replicates_tokens});
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
                                                 const RowRoom& room) const {
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
  if ((!room.factor && !room.tokens) || own == e) return options;
  const double balanced = static_cast<double>(sources * num_tokens * config_.topk.topk * own) / static_cast<double>(e);
  const int64_t bound =
      room.tokens ? sources * *room.tokens * topk : static_cast<int64_t>(std::ceil(balanced * *room.factor));
  if (bound >= options.capacity) return options;
  options.capacity = bound;
  options.is_exact = false;
  return options;
}

Tensor MoeLayer::expert_output(Context& ctx, int64_t num_tokens, const DispatchedTokens& dispatched,
                               const RowRoom& room) const {
  const Routing& routing = dispatched.routing;
  if (sequential_experts_) return sequential_experts_->forward(ctx, dispatched.tokens, routing);
  const Permutation permutation = sort_by_expert(ctx, routing.map, permutation_options(num_tokens, dispatched, room));
  const Tensor probs = permute_probs(ctx, routing.probs, permutation);
  const Tensor rows = permute(ctx, dispatched.tokens, permutation);
  return unpermute(ctx, experts_->forward(ctx, rows, permutation.groups, probs), permutation);
}

Tensor MoeLayer::routed_output(Context& ctx, const Tensor& tokens, const Routing& routing,
                               const Meanwhile& meanwhile) const {
  if (!dispatcher_)
    return expert_output(ctx, tokens.size(0), {.tokens = tokens, .routing = routing, .sections = {}}, {});
  if (!config_.expert_rank_capacity_factor || !ctx.is_training())
    return dispatched_output(ctx, tokens, routing, {}, meanwhile);
  if (!is_bounded_) return exact_output(ctx, tokens, routing);
  return dispatched_output(ctx, tokens, routing, {.factor = config_.expert_rank_capacity_factor, .tokens = {}},
                           meanwhile);
}

/// The values that experts keep for backward may not fit where all tokens go to one rank; those of one layer at a time
/// do.
Tensor MoeLayer::exact_output(Context& ctx, const Tensor& tokens, const Routing& routing) const {
  const int64_t t = tokens.size(0), rounds = std::min(config_.num_exact_rounds, t);
  Tensor sum;
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t begin = t * round / rounds, end = t * (round + 1) / rounds;
    RowRoom room;
    if (rounds > 1) room.tokens = end - begin;
    const Tensor map = rounds > 1 ? rows_of_map(ctx, routing.map, begin, end) : routing.map;
    const auto function = [this, map, room](Context& c, const Payload& in) {
      const Routing own{.probs = at(in, "probs"), .map = map};
      return Payload{{"output", dispatched_output(c, at(in, "tokens"), own, room, {})}};
    };
    const Tensor output = at(recompute(ctx, {{"tokens", tokens}, {"probs", routing.probs}}, function), "output");
    sum = sum.defined() ? add(ctx, sum, output) : output;  // a token's output is 0 but in its own round
  }
  return sum;
}

Tensor MoeLayer::dispatched_output(Context& ctx, const Tensor& tokens, const Routing& routing, const RowRoom& room,
                                   const Meanwhile& meanwhile) const {
  const DispatchedTokens dispatched = dispatcher_->dispatch(ctx, tokens, routing, room, meanwhile);
  return dispatcher_->combine(ctx, expert_output(ctx, tokens.size(0), dispatched, room), dispatched);
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
  Tensor shared;
  const auto compute_shared = [&] { shared = shared_output(ctx, x); };
  const bool overlaps = shared_experts_ && config_.shared_expert_overlap;
  Tensor output = routed_output(ctx, tokens, routed.routing, overlaps ? Meanwhile(compute_shared) : Meanwhile());
  if (fc2_latent_weight_) output = linear(ctx, output, *fc2_latent_weight_, fc2_latent_bias_.get());
  output = output.reshape(x.shape());
  if (shared_experts_ && !shared.defined()) compute_shared();
  if (shared.defined()) output = add(ctx, output, shared);
  return {output, std::move(routed.losses), std::move(routed.tokens_per_expert)};
}

}  // namespace megatron
