#include "megatron/ops/attention.h"

#include "megatron/kernels/cuda/attention/attention.h"
#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/ops/rows.h"
#include "megatron/ops/split_qkv.h"

namespace megatron {
namespace {

kernels::AttentionOptions kernel_options(const Context& ctx, const AttentionOptions& options) {
  return {.scale = options.scale,
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

/// Multiplications and additions of all unmasked pairs of positions, `per_pair` in each query head.
int64_t num_operations(const SequenceLayout& layout, const kernels::AttentionOptions& options, int64_t num_heads,
                       int64_t per_pair) {
  return layout.num_visible_pairs(options.window_left, options.is_causal ? 0 : options.window_right) * num_heads *
         per_pair;
}

struct AttentionNode final : Node {
  AttentionNode(const SequenceLayout& layout, const kernels::AttentionOptions& options, Parameter* sink, bool packs)
      : layout(layout), options(options), sink(sink), packs_gradients(packs) {}

  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Context& ctx = b.ctx;
    const Tensor q = saved_q.get(ctx), k = saved_k.get(ctx), v = saved_v.get(ctx);
    const Tensor o = saved_o.get(ctx), lse = saved_lse.get(ctx);
    const Tensor grad_o = grad_out[0].reshape(o.shape());
    auto [dq, dk, dv] = gradients(ctx, q, k, v);
    const bool has_sink = sink && sink->is_trainable();
    Tensor dsink = has_sink ? ctx.empty("attention.dsink", sink->shape(), sink->main_grad().dtype()) : Tensor();
    const OptionalLease lease(ctx, sink);
    kernels::AttentionBackwardArgs args{.q = q.view(),
                                        .k = k.view(),
                                        .v = v.view(),
                                        .sink = lease.view(),
                                        .o = o.view(),
                                        .lse = lse.view(),
                                        .grad_o = grad_o.view(),
                                        .layout = layout.view(),
                                        .options = options,
                                        .grad_q = dq.view(),
                                        .grad_k = dk.view(),
                                        .grad_v = dv.view(),
                                        .grad_sink = dsink.view()};
    // Recomputed scores, dq and dk; dp and dv.
    ctx.device.num_operations += num_operations(layout, options, q.size(2), 2 * (3 * q.size(3) + 2 * v.size(3)));
    Tensor workspace = ctx.workspace("attention.workspace", with_stream(ctx.device, [&](auto& stream) {
                                       return kernels::attention_backward_workspace_bytes(stream, args);
                                     }));
    args.workspace = workspace.view();
    launch(ctx, {.shape = &q.shape()}, [&](auto& stream) { kernels::attention_backward(stream, args); });
    if (has_sink) add_sink_gradient(ctx, dsink);
    grad_in[0] = std::move(dq);
    grad_in[1] = std::move(dk);
    grad_in[2] = std::move(dv);
    for (SavedTensor* saved : {&saved_q, &saved_k, &saved_v, &saved_o, &saved_lse}) saved->drop();
  }

  QueryKeyValue gradients(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v) const {
    if (packs_gradients)
      return qkv_views(ctx.empty("attention.dqkv", {q.size(0), q.size(1), q.size(2) * 3 * q.size(3)}, q.dtype()),
                       q.size(2));
    return {ctx.empty_like("attention.dq", q), ctx.empty_like("attention.dk", k), ctx.empty_like("attention.dv", v)};
  }

  void add_sink_gradient(const Context& ctx, const Tensor& dsink) {
    const GradTarget target = sink->grad_target(ctx);
    launch(ctx, [&](auto& stream) {
      if (target.accumulate)
        kernels::accumulate(stream, {.x = dsink.view(), .y = target.view});
      else
        kernels::copy(stream, {.x = dsink.view(), .y = target.view});
    });
  }

  SequenceLayout layout;
  kernels::AttentionOptions options;
  Parameter* sink;
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

Tensor attention(Context& ctx, const Tensor& query, const Tensor& key, const Tensor& value,
                 const SequenceLayout& layout, const AttentionOptions& options, Parameter* sink) {
  require_heads(query, key, value, layout);
  require<ShapeError>(!options.packs_gradients || (key.shape() == query.shape() && value.shape() == query.shape()),
                      "[attention] query {}, key {} and value {} must have the same shape for packed gradients.",
                      query.shape(), key.shape(), value.shape());
  const int64_t s = query.size(0), b = query.size(1), n = query.size(2), dv = value.size(3);
  Tensor o = ctx.empty("attention.o", {s, b, n, dv}, query.dtype());
  Tensor lse = ctx.empty("attention.lse", {n, b, s}, statistics_dtype(query.dtype()));
  const kernels::AttentionOptions kernel = kernel_options(ctx, options);
  {
    const OptionalLease lease(ctx, sink);
    kernels::AttentionForwardArgs args{.q = query.view(),
                                       .k = key.view(),
                                       .v = value.view(),
                                       .sink = lease.view(),
                                       .layout = layout.view(),
                                       .options = kernel,
                                       .o = o.view(),
                                       .lse = lse.view()};
    ctx.device.num_operations += num_operations(layout, kernel, n, 2 * (query.size(3) + dv));
    Tensor workspace = ctx.workspace("attention.workspace", with_stream(ctx.device, [&](auto& stream) {
                                       return kernels::attention_forward_workspace_bytes(stream, args);
                                     }));
    args.workspace = workspace.view();
    launch(ctx, {.shape = &query.shape()}, [&](auto& stream) { kernels::attention_forward(stream, args); });
  }
  Tensor y = o.reshape({s, b, n * dv});
  record(ctx, {.in_b = {sink}, .in_w = {}}, {query.slot, key.slot, value.slot}, {&y}, [&] {
    auto node = std::make_unique<AttentionNode>(layout, kernel, sink, options.packs_gradients);
    node->saved_q = SavedTensor(ctx, query);
    node->saved_k = SavedTensor(ctx, key);
    node->saved_v = SavedTensor(ctx, value);
    node->saved_o = SavedTensor(ctx, o);
    node->saved_lse = SavedTensor(ctx, lse);
    return node;
  });
  return y;
}

}  // namespace megatron
