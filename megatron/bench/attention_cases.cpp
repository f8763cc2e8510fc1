#include <algorithm>
#include <cmath>

#include "megatron/bench/step_kernels.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/kernels/attention.h"
#include "megatron/kernels/cuda/attention/attention.h"
#include "megatron/ops/rows.h"
#include "megatron/ops/split_qkv.h"
#include "megatron/transformer/layer_plan.h"

namespace megatron {
namespace {

/// Layers with attention that see as much of the sequence.
struct AttentionKind {
  std::string name;
  int64_t window_left = -1, window_right = -1;
  double share = 1;  // of all layers with attention
};

/// One kind, or two if a window skips layers. A stage is assumed to have its share of both.
std::vector<AttentionKind> attention_kinds(const TransformerConfig& model) {
  if (!model.window_size) return {{.name = "attention"}};
  int64_t num_whole = 0, num_attention = 0;
  for (int64_t layer = 1; layer <= model.num_layers; ++layer) {
    if (layer_kind(model, layer).mixer != Mixer::kSelfAttention) continue;
    ++num_attention;
    num_whole += model.sees_whole_sequence(layer);
  }
  if (num_attention == 0) return {};
  const double whole = static_cast<double>(num_whole) / static_cast<double>(num_attention);
  std::vector<AttentionKind> kinds;
  if (whole > 0) kinds.push_back({.name = "attention", .share = whole});
  if (whole < 1)
    kinds.push_back({.name = "attention in a window",
                     .window_left = model.window_size->first,
                     .window_right = model.window_size->second,
                     .share = 1 - whole});
  return kinds;
}

/// Queries, keys and values, or their gradients, as in SelfAttention: views of the projection if nothing
/// is between it and attention.
QueryKeyValue heads_of(const Context& ctx, const StepShapes& z) {
  const DType dtype = z.model.params_dtype;
  if (z.reads_projection() && !z.has_rotation())
    return qkv_views(random_tensor(ctx, {z.s, z.b, z.n * 3 * z.d}, dtype), z.n);
  return {random_tensor(ctx, {z.s, z.b, z.n, z.d}, dtype), random_tensor(ctx, {z.s, z.b, z.g, z.d}, dtype),
          random_tensor(ctx, {z.s, z.b, z.g, z.d}, dtype)};
}

/// Operands of forward and backward.
struct AttentionOperands {
  AttentionOperands(const Context& ctx, const StepShapes& z)
      : layout(SequenceLayout::uniform(ctx, {.s = z.s, .b = z.b})),
        heads(heads_of(ctx, z)),
        o(ctx.empty("o", {z.s, z.b, z.n, z.d}, z.model.params_dtype)),
        lse(ctx.empty("lse", {z.n, z.b, z.s}, statistics_dtype(z.model.params_dtype))) {
    if (z.model.softmax_type == SoftmaxType::kLearnable) sink = random_tensor(ctx, {z.n}, z.model.params_dtype);
  }
  SequenceLayout layout;
  QueryKeyValue heads;
  Tensor o, lse, sink;
};

kernels::AttentionOptions options_of(const Context& ctx, const StepShapes& z, const AttentionKind& layers) {
  kernels::AttentionOptions options;
  options.scale = z.model.softmax_scale.value_or(1 / std::sqrt(static_cast<double>(z.d)));
  options.window_left = layers.window_left;
  options.window_right = layers.window_right;
  if (z.model.softmax_type == SoftmaxType::kOffByOne) options.softmax = kernels::AttentionSoftmax::kOffByOne;
  if (z.model.softmax_type == SoftmaxType::kLearnable) options.softmax = kernels::AttentionSoftmax::kLearnable;
  options.dropout = z.model.attention_dropout;
  options.is_dropout_of_cudnn = z.model.cudnn_attention_dropout;
  options.dropout_key = ctx.key;
  options.state = &ctx.step;
  options.is_deterministic = z.model.deterministic_mode;
  return options;
}

kernels::AttentionForwardArgs forward_args(const Context& ctx, const StepShapes& z, const AttentionKind& layers,
                                           AttentionOperands& x) {
  kernels::AttentionForwardArgs args{.q = std::as_const(x.heads.query).view(),
                                     .k = std::as_const(x.heads.key).view(),
                                     .v = std::as_const(x.heads.value).view()};
  if (x.sink.defined()) args.sink = std::as_const(x.sink).view();
  args.layout = x.layout.view();
  args.options = options_of(ctx, z, layers);
  args.o = x.o.view();
  args.lse = x.lse.view();
  return args;
}

KernelCall forward_call(const Context& ctx, kernels::AttentionForwardArgs args, const AttentionOperands& x) {
  Tensor workspace = ctx.workspace("workspace", with_stream(ctx.device, [&](auto& stream) {
                                     return kernels::attention_forward_workspace_bytes(stream, args);
                                   }));
  if (workspace.defined()) args.workspace = workspace.view();
  return [&ctx, args, x, workspace] {
    launch(ctx, {.name = "attention", .shape = &x.o.shape()},
           [&](auto& stream) { kernels::attention_forward(stream, args); });
  };
}

/// Backward with the results of a forward that it runs first.
KernelCall backward_call(const Context& ctx, const StepShapes& z, const AttentionKind& layers) {
  AttentionOperands x(ctx, z);
  const kernels::AttentionForwardArgs forward = forward_args(ctx, z, layers, x);
  forward_call(ctx, forward, x)();
  ctx.device.synchronize();  // before its workspace is freed
  Tensor grad_o = random_tensor(ctx, x.o.shape(), x.o.dtype());
  QueryKeyValue gradients = heads_of(ctx, z);
  Tensor dsink = x.sink.defined() ? ctx.empty("dsink", {z.n}, DType::kFloat32) : Tensor();
  kernels::AttentionBackwardArgs args{.q = forward.q, .k = forward.k, .v = forward.v, .sink = forward.sink};
  args.o = std::as_const(x.o).view();
  args.lse = std::as_const(x.lse).view();
  args.grad_o = std::as_const(grad_o).view();
  args.layout = forward.layout;
  args.options = forward.options;
  args.grad_q = gradients.query.view();
  args.grad_k = gradients.key.view();
  args.grad_v = gradients.value.view();
  if (dsink.defined()) args.grad_sink = dsink.view();
  Tensor workspace = ctx.workspace("workspace", with_stream(ctx.device, [&](auto& stream) {
                                     return kernels::attention_backward_workspace_bytes(stream, args);
                                   }));
  if (workspace.defined()) args.workspace = workspace.view();
  return [&ctx, args, x, grad_o, gradients, dsink, workspace] {
    launch(ctx, {.name = "attention", .shape = &x.o.shape()},
           [&](auto& stream) { kernels::attention_backward(stream, args); });
  };
}

/// Query-key pairs of a micro-batch that causal attention computes.
double pairs(const StepShapes& z, int64_t window_left) {
  const double s = static_cast<double>(z.s);
  const double window = window_left < 0 ? s : std::min(s, static_cast<double>(window_left) + 1);
  // The first `window` queries see 1, 2, ..., the others `window` keys.
  return static_cast<double>(z.b) * (window * (window + 1) / 2 + (s - window) * window);
}

}  // namespace

std::vector<KernelCase> attention_cases(const StepShapes& of_rank, const StageParts& stage) {
  StepShapes z = of_rank;
  z.s *= z.cp;
  z.t *= z.cp;
  std::vector<KernelCase> cases;
  const double element = static_cast<double>(size_of(z.model.params_dtype));
  const double q = static_cast<double>(z.t * z.n * z.d) * element, k = static_cast<double>(z.t * z.g * z.d) * element;
  for (const AttentionKind& layers : attention_kinds(z.model)) {
    const double calls =
        layers.share * static_cast<double>(stage.num_attention * z.num_microbatches) / static_cast<double>(z.cp);
    if (calls == 0) continue;
    const double per_product = 2 * pairs(z, layers.window_left) * static_cast<double>(z.n * z.d);
    KernelCase forward{.name = layers.name + " forward", .kind = KernelKind::kAttention, .calls = calls};
    forward.operations = 2 * per_product;
    forward.bytes = 2 * q + 2 * k;
    forward.prepare = [z, layers](const Context& ctx) {
      AttentionOperands x(ctx, z);
      return forward_call(ctx, forward_args(ctx, z, layers, x), x);
    };
    KernelCase backward{.name = layers.name + " backward", .kind = KernelKind::kAttention, .calls = calls};
    backward.operations = 5 * per_product;
    backward.bytes = 4 * q + 4 * k;
    backward.prepare = [z, layers](const Context& ctx) { return backward_call(ctx, z, layers); };
    cases.push_back(std::move(forward));
    cases.push_back(std::move(backward));
  }
  return cases;
}

}  // namespace megatron
