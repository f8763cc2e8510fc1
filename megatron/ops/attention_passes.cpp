#include "megatron/ops/attention_passes.h"

#include "megatron/kernels/cuda/attention/attention.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

/// Multiplications and additions of all unmasked pairs of positions, `per_pair` in each query head.
int64_t num_operations(const SequenceLayout& layout, const kernels::AttentionOptions& options, int64_t num_heads,
                       int64_t per_pair) {
  return layout.num_visible_pairs(options.window_left, options.is_causal ? 0 : options.window_right) * num_heads *
         per_pair;
}

}  // namespace

AttentionOutput attention_forward_pass(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                                       const ConstView& sink, const SequenceLayout& layout,
                                       const kernels::AttentionOptions& options, Tensor max_logits) {
  const int64_t s = q.size(0), b = q.size(1), n = q.size(2), dv = v.size(3);
  AttentionOutput out{ctx.empty("attention.o", {s, b, n, dv}, q.dtype()),
                      ctx.empty("attention.lse", {n, b, s}, statistics_dtype(q.dtype()))};
  kernels::AttentionForwardArgs args{.q = q.view(),
                                     .k = k.view(),
                                     .v = v.view(),
                                     .sink = sink,
                                     .layout = layout.view(),
                                     .options = options,
                                     .o = out.o.view(),
                                     .lse = out.lse.view(),
                                     .max_logits = max_logits.view()};
  ctx.device.num_operations += num_operations(layout, options, n, 2 * (q.size(3) + dv));
  Tensor workspace = ctx.workspace("attention.workspace", with_stream(ctx.device, [&](auto& stream) {
                                     return kernels::attention_forward_workspace_bytes(stream, args);
                                   }));
  args.workspace = workspace.view();
  launch(ctx, {.name = "attention", .shape = &q.shape()},
         [&](auto& stream) { kernels::attention_forward(stream, args); });
  return out;
}

void attention_backward_pass(const Context& ctx, const SequenceLayout& layout, kernels::AttentionBackwardArgs args) {
  args.layout = layout.view();
  // Recomputed scores, dq and dk; dp and dv.
  ctx.device.num_operations +=
      num_operations(layout, args.options, args.q.shape[2], 2 * (3 * args.q.shape[3] + 2 * args.v.shape[3]));
  Tensor workspace = ctx.workspace("attention.workspace", with_stream(ctx.device, [&](auto& stream) {
                                     return kernels::attention_backward_workspace_bytes(stream, args);
                                   }));
  args.workspace = workspace.view();
  launch(ctx, {.name = "attention", .shape = &args.q.shape},
         [&](auto& stream) { kernels::attention_backward(stream, args); });
}

}  // namespace megatron
