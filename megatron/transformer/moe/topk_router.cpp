#include "megatron/transformer/moe/topk_router.h"

#include "megatron/autograd/recompute_run.h"
#include "megatron/core/copy.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/ops/input_jitter.h"
#include "megatron/tensor_parallel/collectives.h"

namespace megatron {
namespace {

/// A tensor that lies in device memory during the whole training run, 0 at first.
Tensor persistent_zeros(const Context& ctx, std::string_view name, const Shape& shape) {
  Tensor x = ctx.empty(name, shape, DType::kFloat32, MemoryUse::kOptimizer);
  fill_zero(ctx.device, x.data<float>(), x.bytes());
  return x;
}

void sum_over_ranks(const ProcessGroup& group, Tensor& x, std::string_view site) {
  if (group.size() > 1) start_all_reduce(group, x, ReduceOp::kSum, site).wait();
}

}  // namespace

std::string_view auxiliary_loss_of(LoadBalancingType type) {
  switch (type) {
    case LoadBalancingType::kAuxLoss:
      return "load_balancing_loss";
    case LoadBalancingType::kSeqAuxLoss:
      return "seq_load_balancing_loss";
    case LoadBalancingType::kGlobalAuxLoss:
      return "global_load_balancing_loss";
    case LoadBalancingType::kSinkhorn:
    case LoadBalancingType::kQuantileBalancing:
    case LoadBalancingType::kNone:
      break;
  }
  return {};
}

TopKRouter::TopKRouter(const ModuleContext& context, const MoeConfig& config)
    : config_(config), path_(context.path), tp_cp_(context.groups.tp_cp), tp_dp_cp_(context.groups.tp_dp_cp) {
  config_.validate();
  const int64_t e = config_.num_experts, h = context.config.hidden_size;
  const auto options = [&](std::string_view name, const Shape& shape, double init_std) {
    ParameterOptions made = context.parameter(name, context.whole(shape));
    made.init_std = init_std;
    return made;
  };
  register_parameter(weight_, context.ctx, options("weight", {e, h}, context.config.init_method_std));
  if (context.config.add_bias_linear) register_parameter(bias_, context.ctx, options("bias", {e}, 0));
  const auto add_state = [&](std::unique_ptr<Parameter>& slot, std::string_view name) {
    ParameterOptions made = options(name, {e}, 0);
    made.dtype = DType::kFloat32;
    made.is_trainable = false;
    register_parameter(slot, context.ctx, std::move(made)).initialize(context.ctx);
  };
  if (config_.enable_expert_bias) {
    add_state(expert_bias_, "expert_bias");
    tokens_per_expert_ = persistent_zeros(context.ctx, "router.tokens_per_expert", {1, e});
  }
  if (config_.balances_by(LoadBalancingType::kGlobalAuxLoss))
    global_counts_ = persistent_zeros(context.ctx, "router.global_tokens_per_expert", {1, e});
  if (config_.balances_by(LoadBalancingType::kQuantileBalancing)) {
    add_state(quantile_beta_, "qb_beta");
    quantile_sums_ = persistent_zeros(context.ctx, "router.qb_beta_accum", {e + 1});
  }
}

RouterOutput TopKRouter::forward(Context& ctx, const Tensor& x, const RouterInputs& inputs) const {
  RouterOutput output;
  const DType dtype = x.dtype() == DType::kFloat64 ? x.dtype() : config_.router_dtype;
  Tensor logits = router_logits(ctx, jittered(ctx, x, inputs.rows), *weight_, bias_.get(), dtype);
  const int64_t num_tokens = logits.size(0);
  if (config_.force_routing_bias_std) logits = force_routing(ctx, logits, path_, *config_.force_routing_bias_std);
  const auto add_loss = [&](std::string_view name, const LogitsAndLoss& attached) {
    logits = attached.logits;
    output.losses.push_back({name, attached.loss});
  };
  if (ctx.is_training() && config_.z_loss_coeff)
    add_loss(kZLoss,
             attach_z_loss(ctx, logits, inputs.loss_scale, *config_.z_loss_coeff * loss_weight(num_tokens, tp_cp_)));
  for (const LoadBalancing& balancing : config_.load_balancing)
    if (const std::string_view name = auxiliary_loss_of(balancing.type);
        ctx.is_training() && !name.empty() && balancing.aux_loss_coeff != 0)
      add_loss(name, attach_balance_loss(ctx, logits, counts_of(ctx, logits, x.size(-2), balancing.type),
                                         inputs.loss_scale, config_.topk.score,
                                         balancing.aux_loss_coeff * loss_weight(num_tokens, group_of(balancing.type))));
  output.routing = choose(ctx, logits);
  if (ctx.is_training() && ctx.is_first_run()) {
    Tensor counts = tokens_per_expert_;
    if (config_.enable_expert_bias) count_tokens(ctx, output.routing.map, counts, true);
    if (config_.per_layer_logging) {
      output.tokens_per_expert = ctx.empty("router.logged_counts", {1, logits.size(1)}, DType::kFloat32);
      count_tokens(ctx, output.routing.map, output.tokens_per_expert, false);
    }
  }
  if (config_.pad_expert_input_to_multiple > 0)
    output.routing.map = pad_routing_map(ctx, output.routing.map, config_.pad_expert_input_to_multiple);
  return output;
}

Tensor TopKRouter::jittered(Context& ctx, const Tensor& x, const RowMap& rows) const {
  if (!config_.input_jitter_eps || !ctx.is_training()) return x;
  return input_jitter(ctx, x, {.eps = *config_.input_jitter_eps, .path = path_, .rows = rows});
}

void TopKRouter::begin_step(const Context& ctx) {
  clear_counts(ctx);
  replay_.begin_step();
}

void TopKRouter::clear_counts(const Context& ctx) {
  for (Tensor* counts : {&tokens_per_expert_, &global_counts_, &quantile_sums_})
    if (counts->defined()) fill_zero(ctx.device, counts->data<float>(), counts->bytes());
}

void TopKRouter::finish_step(const Context& ctx) {
  if (expert_bias_) {
    sum_over_ranks(tp_dp_cp_, tokens_per_expert_, "tokens_per_expert");
    update_expert_bias(ctx, tokens_per_expert_, expert_bias_->value(), config_.bias_update_rate);
  }
  if (quantile_beta_) {
    sum_over_ranks(tp_dp_cp_, quantile_sums_, "quantile_sums");
    update_quantile_beta(ctx, quantile_sums_, quantile_beta_->value(), config_.quantile_balancing_ema);
  }
  clear_counts(ctx);
}

double TopKRouter::loss_weight(int64_t num_tokens, const ProcessGroup& group) const {
  const auto weight = static_cast<double>(config_.calculate_per_token_loss ? num_tokens * tp_cp_.size() : 1);
  return weight / group.size();
}

const ProcessGroup& TopKRouter::group_of(LoadBalancingType type) const {
  return type == LoadBalancingType::kGlobalAuxLoss ? tp_dp_cp_ : tp_cp_;
}

/// The number of tokens that would go to each expert by the plain scores, without bias, groups and capacity.
Tensor TopKRouter::counts_of(Context& ctx, const Tensor& logits, int64_t b, LoadBalancingType type) const {
  return compute_once(ctx, [&] {
    const int64_t num_sequences = type == LoadBalancingType::kSeqAuxLoss ? b : 1;
    const Tensor map = topk_map(ctx, logits, config_.topk.topk);
    Tensor counts = ctx.empty("router.counts", {num_sequences, logits.size(1)}, DType::kFloat32);
    count_tokens(ctx, map, counts, false);
    sum_over_ranks(group_of(type), counts, "router.counts");
    if (type != LoadBalancingType::kGlobalAuxLoss) return counts;
    Tensor total = global_counts_;
    // Backward reads what was counted until now, not what later micro-batches add.
    launch(ctx, [&](auto& stream) {
      kernels::accumulate(stream, {.x = counts.view(), .y = total.view()});
      kernels::copy(stream, {.x = total.view(), .y = counts.view()});
    });
    return counts;
  });
}

Tensor TopKRouter::selection_of(const Context& ctx, const Tensor& logits) const {
  if (config_.balances_by(LoadBalancingType::kSinkhorn) && ctx.is_training()) return sinkhorn_values(ctx, logits);
  if (!config_.balances_by(LoadBalancingType::kQuantileBalancing)) return {};
  const bool counts = ctx.is_training() && ctx.is_first_run();
  if (counts && tp_cp_.size() > 1) {  // the quantiles are those of whole sequences
    const Tensor all = gather_rows_of_ranks(ctx, tp_cp_, logits, "router.logits");
    quantile_values(ctx, all, quantile_beta_->value(), quantile_sums_, config_.topk.topk);
  }
  return quantile_values(ctx, logits, quantile_beta_->value(), counts && tp_cp_.size() == 1 ? quantile_sums_ : Tensor(),
                         config_.topk.topk);
}

Routing TopKRouter::choose(Context& ctx, const Tensor& logits) const {
  kernels::RouterTopkOptions options = config_.topk;
  if (config_.balances_by(LoadBalancingType::kSinkhorn))
    options = {.topk = options.topk,
               .score = options.topk == 1 ? kernels::RouterScore::kSigmoid : kernels::RouterScore::kSoftmax,
               .pre_softmax = true};
  Tensor selection = replay_.next_selection(ctx, logits, options.topk), bias;
  if (selection.defined()) {
    options.num_groups = options.group_topk = 0;
  } else {
    selection = selection_of(ctx, logits);
    if (expert_bias_) bias = expert_bias_->value();
  }
  Routing routing = router_topk(ctx, logits, selection, bias, options);
  replay_.add(ctx, routing.map, options.topk);
  if (!config_.expert_capacity_factor) return routing;
  const int64_t capacity =
      kernels::expert_capacity(logits.size(0), options.topk, logits.size(1), *config_.expert_capacity_factor);
  return drop_tokens(
      ctx, routing,
      {.capacity = capacity, .policy = config_.token_drop_policy, .pad = config_.pad_expert_input_to_capacity});
}

}  // namespace megatron
