#include "megatron/ops/attention.h"

#include "megatron/kernels/elementwise.h"
#include "megatron/ops/attention_passes.h"
#include "megatron/ops/rows.h"
#include "megatron/ops/split_qkv.h"

namespace megatron {
namespace {

/// The sinks of the heads of q.
ConstView sinks_of(const ConstView& all, int64_t first, const Tensor& q) {
  if (!all.defined()) return all;
  ConstView part = all;
  part.data = static_cast<const char*>(all.data) + first * size_of(all.dtype);
  part.shape = Shape{q.size(2)};
  return part;
}

struct AttentionNode final : Node {
  AttentionNode(const SequenceLayout& layout, const kernels::AttentionOptions& kernel, Parameter* sink,
                const AttentionOptions& options)
      : layout(layout),
        options(kernel),
        sink(sink),
        first_sink(options.first_sink),
        packs_gradients(options.packs_gradients) {}

  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Context& ctx = b.ctx;
    const Tensor q = saved_q.get(ctx), k = saved_k.get(ctx), v = saved_v.get(ctx);
    const Tensor o = saved_o.get(ctx), lse = saved_lse.get(ctx);
    const Tensor grad_o = grad_out[0].reshape(o.shape());
    QueryKeyValue grads = gradients(ctx, q, k, v);
    const bool has_sink = sink && sink->is_trainable();
    Tensor dsink = has_sink ? ctx.empty("attention.dsink", {q.size(2)}, sink->main_grad().dtype()) : Tensor();
    const OptionalLease lease(ctx, sink);
    attention_backward_pass(ctx, layout,
                            {.q = q.view(),
                             .k = k.view(),
                             .v = v.view(),
                             .sink = sinks_of(lease.view(), first_sink, q),
                             .o = o.view(),
                             .lse = lse.view(),
                             .grad_o = grad_o.view(),
                             .layout = {},
                             .options = options,
                             .grad_q = grads.query.view(),
                             .grad_k = grads.key.view(),
                             .grad_v = grads.value.view(),
                             .grad_sink = dsink.view(),
                             .workspace = {}});
    if (has_sink) add_sink_gradient(ctx, dsink);
    grad_in[0] = std::move(grads.query);
    grad_in[1] = std::move(grads.key);
    grad_in[2] = std::move(grads.value);
    for (SavedTensor* saved : {&saved_q, &saved_k, &saved_v, &saved_o, &saved_lse}) saved->drop();
  }

  QueryKeyValue gradients(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v) const {
    if (packs_gradients)
      return qkv_views(ctx.empty("attention.dqkv", {q.size(0), q.size(1), q.size(2) * 3 * q.size(3)}, q.dtype()),
                       q.size(2));
    return {ctx.empty_like("attention.dq", q), ctx.empty_like("attention.dk", k), ctx.empty_like("attention.dv", v)};
  }

  /// Ranks that hold other heads add the rest.
  void add_sink_gradient(const Context& ctx, const Tensor& dsink) {
    const GradTarget target = sink->grad_target(ctx);
    const bool is_part = dsink.shape() != sink->shape();
    launch(ctx, [&](auto& stream) {
      View place = target.view;
      place.data = static_cast<char*>(place.data) + first_sink * size_of(place.dtype);
      place.shape = dsink.shape();
      if (is_part && !target.accumulate) kernels::fill(stream, {.y = target.view, .value = 0});
      if (target.accumulate)
        kernels::accumulate(stream, {.x = dsink.view(), .y = place});
      else
        kernels::copy(stream, {.x = dsink.view(), .y = place});
    });
  }

  SequenceLayout layout;
  kernels::AttentionOptions options;
  Parameter* sink;
  int64_t first_sink;
  bool packs_gradients;
  SavedTensor saved_q, saved_k, saved_v, saved_o, saved_lse;
};

void require_heads(const Tensor& q, const Tensor& k, const Tensor& v, const SequenceLayout& layout) {
  const bool fits = q.shape().rank() == 4 && k.shape().rank() == 4 && v.shape().rank() == 4 &&
                    q.size(0) == layout.s() && q.size(1) == layout.b() && k.size(1) == q.size(1) &&
                    v.size(1) == q.size(1) && k.size(3) == q.size(3) && v.size(0) == k.size(0) &&
                    v.size(2) == k.size(2) && q.size(2) % k.size(2) == 0;
  require<ShapeError>(
      fits,
      "[attention] query {}, key {} and value {} do not fit each other, or {} rows in {} columns: [s, b, n, "
      "d], [s_k, b, g, d], [s_k, b, g, d_v] with n a multiple of g.",
      q.shape(), k.shape(), v.shape(), layout.s(), layout.b());
  require<ShapeError>(layout.num_keys() <= k.size(0), "[attention] the layout reads {} keys, but there are {}.",
                      layout.num_keys(), k.size(0));
}

}  // namespace

Tensor AttentionOptions::own_max_logits(int64_t num_heads) const {
  return max_logits.defined() ? max_logits.slice(0, first_head, num_heads) : Tensor();
}

kernels::AttentionOptions kernel_options(const Context& ctx, const AttentionOptions& options) {
  return {.scale = options.scale,
          .soft_cap = options.soft_cap,
          .is_causal = options.is_causal,
          .window_left = options.window_left,
          .window_right = options.window_right,
          .softmax = options.softmax,
          .dropout = ctx.is_training() ? options.dropout : 0,
          .dropout_key = options.dropout > 0 ? ctx.key.at(options.path) : RandomKey{},
          .state = &ctx.step,
          .first_head = options.first_head,
          .is_dropout_of_cudnn = options.is_dropout_of_cudnn,
          .is_deterministic = options.is_deterministic};
}

Tensor attention(Context& ctx, const Tensor& query, const Tensor& key, const Tensor& value,
                 const SequenceLayout& layout, const AttentionOptions& options, Parameter* sink) {
  require_heads(query, key, value, layout);
  require<ShapeError>(!options.packs_gradients || (key.shape() == query.shape() && value.shape() == query.shape()),
                      "[attention] query {}, key {} and value {} must have the same shape for packed gradients.",
                      query.shape(), key.shape(), value.shape());
  require<ShapeError>(!sink || (options.first_sink >= 0 && options.first_sink + query.size(2) <= sink->shape()[0]),
                      "[attention] {} heads from element {} on do not fit a sink of {} elements.", query.size(2),
                      options.first_sink, sink ? sink->shape()[0] : 0);
  const kernels::AttentionOptions kernel = kernel_options(ctx, options);
  AttentionOutput out;
  {
    const OptionalLease lease(ctx, sink);
    out = attention_forward_pass(ctx, query, key, value, sinks_of(lease.view(), options.first_sink, query), layout,
                                 kernel, options.own_max_logits(query.size(2)));
  }
  Tensor y = out.o.reshape({query.size(0), query.size(1), query.size(2) * value.size(3)});
  record(ctx, {.in_b = {sink}, .in_w = {}}, {query.slot, key.slot, value.slot}, {&y}, [&] {
    auto node = std::make_unique<AttentionNode>(layout, kernel, sink, options);
    node->saved_q = SavedTensor(ctx, query);
    node->saved_k = SavedTensor(ctx, key);
    node->saved_v = SavedTensor(ctx, value);
    node->saved_o = SavedTensor(ctx, out.o);
    node->saved_lse = SavedTensor(ctx, out.lse);
    return node;
  });
  return y;
}

}  // namespace megatron
