#include "megatron/ops/router.h"

#include "megatron/kernels/elementwise.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

struct RouterTopkNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor logits = saved_logits.get(b.ctx), map = saved_map.get(b.ctx);
    Tensor dlogits = b.ctx.empty_like("router_topk.dlogits", logits);
    launch(b.ctx, [&](auto& stream) {
      kernels::router_topk_backward(stream, {.logits = logits.view(),
                                             .map = map.view(),
                                             .dprobs = grad_out[0].view(),
                                             .dlogits = dlogits.view(),
                                             .options = options});
    });
    grad_in[0] = std::move(dlogits);
    saved_logits.drop();
    saved_map.drop();
  }
  kernels::RouterTopkOptions options;
  SavedTensor saved_logits, saved_map;
};

/// Kept probabilities keep their gradient, dropped ones have none: multiplication by the map.
struct DropTokensNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor map = saved_map.get(b.ctx);
    Tensor dprobs = b.ctx.empty_like("drop_tokens.dprobs", grad_out[0]);
    launch(b.ctx, [&](auto& stream) {
      kernels::mask_probs(stream, {.probs = grad_out[0].view(), .map = map.view(), .out_probs = dprobs.view()});
    });
    grad_in[0] = std::move(dprobs);
    saved_map.drop();
  }
  SavedTensor saved_map;
};

struct BalanceLossNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor logits = saved_logits.get(b.ctx), counts = saved_counts.get(b.ctx);
    Tensor dlogits = b.ctx.empty_like("balance_loss.dlogits", logits);
    launch(b.ctx, [&](auto& stream) {
      kernels::balance_loss_backward(stream, {.logits = logits.view(),
                                              .counts = counts.view(),
                                              .dlogits_out = grad_out[0].view(),
                                              .scale = scale.view(),
                                              .dlogits = dlogits.view(),
                                              .score = score,
                                              .factor = factor});
    });
    grad_in[0] = std::move(dlogits);
    saved_logits.drop();
    saved_counts.drop();
  }
  Tensor scale;
  kernels::RouterScore score = kernels::RouterScore::kSoftmax;
  double factor = 1;
  SavedTensor saved_logits, saved_counts;
};

struct ZLossNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor logits = saved_logits.get(b.ctx);
    Tensor dlogits = b.ctx.empty_like("z_loss.dlogits", logits);
    launch(b.ctx, [&](auto& stream) {
      kernels::z_loss_backward(stream, {.logits = logits.view(),
                                        .dlogits_out = grad_out[0].view(),
                                        .scale = scale.view(),
                                        .dlogits = dlogits.view(),
                                        .factor = factor});
    });
    grad_in[0] = std::move(dlogits);
    saved_logits.drop();
  }
  Tensor scale;
  double factor = 1;
  SavedTensor saved_logits;
};

/// The gradient as it comes.
struct PassNode final : Node {
  void backward_input(BackwardContext&, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = grad_out[0];
  }
};

void require_logits(std::string_view op, const Tensor& logits) {
  require<ShapeError>(logits.shape().rank() == 2 && logits.is_contiguous(),
                      "[{}] logits are a contiguous [tokens, experts], got shape {}.", op, logits.shape());
  require<DtypeError>(logits.dtype() == DType::kFloat32 || logits.dtype() == DType::kFloat64,
                      "[{}] logits are float32 or float64, got {}. Make them with router_logits.", op, logits.dtype());
}

void require_options(const kernels::RouterTopkOptions& options, int64_t num_experts) {
  require<ConfigError>(options.topk >= 1 && options.topk <= num_experts,
                       "[router_topk] topk {} is not between 1 and the {} experts.", options.topk, num_experts);
  if (options.num_groups == 0) return;
  const int64_t groups = options.num_groups, best = options.group_topk;
  require<ConfigError>(groups <= kernels::RouterTopkOptions::kMostGroups && num_experts % groups == 0,
                       "[router_topk] {} experts do not divide into {} groups, of which there may be {}.", num_experts,
                       groups, kernels::RouterTopkOptions::kMostGroups);
  require<ConfigError>(
      best >= 1 && best <= groups && best <= options.topk && options.topk * groups <= best * num_experts,
      "[router_topk] topk {} experts cannot come from {} of {} groups of {} experts: group_topk must be "
      "between 1 and topk, and its groups must have topk experts.",
      options.topk, best, groups, num_experts / groups);
  require<ConfigError>(options.group_score_topk >= 0 && options.group_score_topk * groups <= num_experts,
                       "[router_topk] {} experts of a group cannot make its score: a group has {}.",
                       options.group_score_topk, num_experts / groups);
}

}  // namespace

Routing router_topk(Context& ctx, const Tensor& logits, const Tensor& selection, const Tensor& expert_bias,
                    const kernels::RouterTopkOptions& options) {
  require_logits("router_topk", logits);
  require_options(options, logits.size(1));
  Routing routing{ctx.empty("router_topk.probs", logits.shape(), logits.dtype()),
                  ctx.empty("router_topk.map", logits.shape(), DType::kUInt8)};
  launch(ctx, [&](auto& stream) {
    kernels::router_topk_forward(stream, {.logits = logits.view(),
                                          .selection = selection.view(),
                                          .expert_bias = expert_bias.view(),
                                          .probs = routing.probs.view(),
                                          .map = routing.map.view(),
                                          .options = options});
  });
  record(ctx, {}, {logits.slot}, {&routing.probs}, [&] {
    auto node = std::make_unique<RouterTopkNode>();
    node->options = options;
    node->saved_logits = SavedTensor(ctx, logits);
    node->saved_map = SavedTensor(ctx, routing.map);
    return node;
  });
  return routing;
}

Tensor sinkhorn_values(const Context& ctx, const Tensor& logits) {
  require_logits("sinkhorn_values", logits);
  Tensor values = ctx.empty("sinkhorn.values", logits.shape(), logits.dtype());
  Tensor workspace =
      ctx.workspace("sinkhorn.workspace", kernels::sinkhorn_workspace_bytes(logits.size(0), logits.size(1)));
  launch(ctx, [&](auto& stream) {
    kernels::sinkhorn(stream, {.logits = logits.view(), .values = values.view(), .workspace = workspace.view()});
  });
  return values;
}

Routing drop_tokens(Context& ctx, const Routing& routing, const TokenDropOptions& options) {
  const Shape& shape = routing.map.shape();
  Routing kept{ctx.empty("drop_tokens.probs", shape, routing.probs.dtype()),
               ctx.empty("drop_tokens.map", shape, DType::kUInt8)};
  Tensor workspace = ctx.workspace("drop_tokens.workspace", kernels::drop_tokens_workspace_bytes(shape[0], shape[1]));
  launch(ctx, [&](auto& stream) {
    kernels::drop_tokens(stream, {.probs = routing.probs.view(),
                                  .map = routing.map.view(),
                                  .out_probs = kept.probs.view(),
                                  .out_map = kept.map.view(),
                                  .workspace = workspace.view(),
                                  .capacity = options.capacity,
                                  .policy = options.policy,
                                  .pad = options.pad});
  });
  record(ctx, {}, {routing.probs.slot}, {&kept.probs}, [&] {
    auto node = std::make_unique<DropTokensNode>();
    node->saved_map = SavedTensor(ctx, kept.map);
    return node;
  });
  return kept;
}

Tensor pad_routing_map(const Context& ctx, const Tensor& map, int64_t multiple) {
  Tensor padded = ctx.empty("pad_routing_map.map", map.shape(), DType::kUInt8);
  launch(ctx, [&](auto& stream) {
    kernels::pad_routing_map(stream, {.map = map.view(), .out_map = padded.view(), .multiple = multiple});
  });
  return padded;
}

Tensor topk_map(const Context& ctx, const Tensor& logits, int64_t topk) {
  require_logits("topk_map", logits);
  require_options({.topk = topk}, logits.size(1));
  Tensor map = ctx.empty("topk_map.map", logits.shape(), DType::kUInt8);
  launch(ctx, [&](auto& stream) { kernels::topk_map(stream, {.x = logits.view(), .map = map.view(), .topk = topk}); });
  return map;
}

void count_tokens(const Context& ctx, const Tensor& map, Tensor& counts, bool accumulate) {
  require<ShapeError>(counts.shape().rank() == 2 && counts.size(1) == map.size(1),
                      "[count_tokens] counts of shape {} are not [sequences, {} experts].", counts.shape(),
                      map.size(1));
  launch(ctx, [&](auto& stream) {
    kernels::count_tokens(stream, {.map = map.view(), .counts = counts.view(), .accumulate = accumulate});
  });
}

void update_expert_bias(const Context& ctx, const Tensor& counts, Tensor& expert_bias, double rate) {
  require<ShapeError>(counts.num_elements() == expert_bias.num_elements(),
                      "[update_expert_bias] counts of shape {} for a bias of shape {}.", counts.shape(),
                      expert_bias.shape());
  const Tensor row = counts.reshape(expert_bias.shape());
  launch(ctx, [&](auto& stream) {
    kernels::update_expert_bias(stream, {.counts = row.view(), .expert_bias = expert_bias.view(), .rate = rate});
  });
}

LogitsAndLoss attach_balance_loss(Context& ctx, const Tensor& logits, const Tensor& counts, const Tensor& scale,
                                  kernels::RouterScore score, double coeff) {
  require_logits("attach_balance_loss", logits);
  const double factor = static_cast<double>(logits.size(1)) / static_cast<double>(logits.size(0));
  LogitsAndLoss result{logits.detach(), ctx.empty("balance_loss", {1}, DType::kFloat64)};
  {
    Tensor rows = ctx.empty("balance_loss.rows", {logits.size(0)}, DType::kFloat64, MemoryUse::kWorkspace);
    launch(ctx, [&](auto& stream) {
      kernels::balance_loss_forward(stream, {.logits = logits.view(),
                                             .counts = counts.view(),
                                             .row_losses = rows.view(),
                                             .loss = result.loss.view(),
                                             .score = score,
                                             .factor = factor});
    });
  }
  record(ctx, {}, {logits.slot}, {&result.logits}, [&] {
    auto node = std::make_unique<BalanceLossNode>();
    node->scale = scale;
    node->score = score;
    node->factor = coeff * factor;
    node->saved_logits = SavedTensor(ctx, logits);
    node->saved_counts = SavedTensor(ctx, counts);
    return node;
  });
  return result;
}

LogitsAndLoss attach_z_loss(Context& ctx, const Tensor& logits, const Tensor& scale, double coeff) {
  require_logits("attach_z_loss", logits);
  const double factor = 1 / static_cast<double>(logits.size(0));
  LogitsAndLoss result{logits.detach(), ctx.empty("z_loss", {1}, DType::kFloat64)};
  {
    Tensor rows = ctx.empty("z_loss.rows", {logits.size(0)}, DType::kFloat64, MemoryUse::kWorkspace);
    launch(ctx, [&](auto& stream) {
      kernels::z_loss_forward(
          stream, {.logits = logits.view(), .row_losses = rows.view(), .loss = result.loss.view(), .factor = factor});
    });
  }
  record(ctx, {}, {logits.slot}, {&result.logits}, [&] {
    auto node = std::make_unique<ZLossNode>();
    node->scale = scale;
    node->factor = coeff * factor;
    node->saved_logits = SavedTensor(ctx, logits);
    return node;
  });
  return result;
}

Tensor quantile_values(const Context& ctx, const Tensor& logits, const Tensor& beta, Tensor sums, int64_t topk) {
  require_logits("quantile_values", logits);
  require<ConfigError>(topk >= 1 && topk < logits.size(1),
                       "[quantile_values] topk {} must be below the {} experts: the next one sets the threshold.", topk,
                       logits.size(1));
  Tensor values = ctx.empty("quantile.values", logits.shape(), logits.dtype());
  Tensor workspace =
      ctx.workspace("quantile.workspace", kernels::quantile_workspace_bytes(logits.size(0), logits.size(1)));
  launch(ctx, [&](auto& stream) {
    kernels::quantile_balance(stream, {.logits = logits.view(),
                                       .beta = beta.view(),
                                       .values = values.view(),
                                       .sums = sums.view(),
                                       .workspace = workspace.view(),
                                       .topk = topk});
  });
  return values;
}

void update_quantile_beta(const Context& ctx, const Tensor& sums, Tensor& beta, double ema) {
  launch(ctx, [&](auto& stream) {
    kernels::update_quantile_beta(stream, {.sums = sums.view(), .beta = beta.view(), .ema = ema});
  });
}

Tensor force_routing(Context& ctx, const Tensor& logits, std::string_view path, double bias_std) {
  require_logits("force_routing", logits);
  Tensor forced = ctx.empty("force_routing.logits", logits.shape(), logits.dtype());
  launch(ctx, [&](auto& stream) {
    kernels::fill_forced_logits(stream, {.logits = forced.view(),
                                         .key = ctx.key.at(path).at("forced_logits"),
                                         .bias_key = ctx.key.at(path).at("forced_bias"),
                                         .state = &ctx.step,
                                         .bias_std = bias_std});
  });
  record(ctx, {}, {logits.slot}, {&forced}, [] { return std::make_unique<PassNode>(); });
  return forced;
}

}  // namespace megatron
