#include "megatron/ops/router_logits.h"

#include "megatron/kernels/elementwise.h"
#include "megatron/ops/linear.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

/// x in another dtype, unknown to the tape.
Tensor converted(const Context& ctx, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x.detach();
  Tensor y = ctx.empty("router_logits.converted", x.shape(), dtype);
  launch(ctx, [&](auto& stream) { kernels::copy(stream, {.x = x.view(), .y = y.view()}); });
  return y;
}
Tensor converted(const Context& ctx, ConstView x, DType dtype) {
  Tensor y = ctx.empty("router_logits.converted_weight", x.shape, dtype);
  launch(ctx, [&](auto& stream) { kernels::copy(stream, {.x = x, .y = y.view()}); });
  return y;
}

/// An fp32 number is the sum of three bf16 ones, whose significands have 8 of its 24 bits each.
constexpr int64_t kTerms = 3;

/// Columns [k e, (k + 1) e) of terms [t, 3 e].
View columns_of_term(Tensor& terms, int64_t k) {
  View part = terms.view();
  part.shape = Shape{terms.size(0), terms.size(1) / kTerms};
  part.data = static_cast<char*>(part.data) + k * part.shape[1] * size_of(part.dtype);
  return part;
}

/// [t, e] in fp32 as [t, 3 e] in bf16: the columns of the first terms, of the second and of the third.
Tensor terms_of(const Context& ctx, const Tensor& x) {
  Tensor terms = ctx.empty("router_logits.terms", {x.size(0), kTerms * x.size(1)}, DType::kBFloat16);
  Tensor rest = ctx.empty("router_logits.rest", x.shape(), x.dtype());
  launch(ctx, [&](auto& stream) {
    kernels::copy(stream, {.x = x.view(), .y = rest.view()});
    for (int64_t k = 0; k < kTerms; ++k) {
      const View term = columns_of_term(terms, k);
      kernels::copy(stream, {.x = rest.view(), .y = term});
      if (k + 1 < kTerms) kernels::accumulate(stream, {.x = term, .y = rest.view(), .factor = -1});
    }
  });
  return terms;
}

/// [e, h] three times: [3 e, h].
Tensor repeated(const Context& ctx, const ConstView& weight) {
  Tensor y = ctx.empty("router_logits.repeated_weight", {kTerms * weight.shape[0], weight.shape[1]}, weight.dtype);
  Tensor blocks = y.reshape({kTerms, weight.shape[0], weight.shape[1]});
  ConstView source = weight;
  source.shape = blocks.shape();
  source.strides = {0, weight.strides[0], weight.strides[1]};
  launch(ctx, [&](auto& stream) { kernels::copy(stream, {.x = source, .y = blocks.view()}); });
  return y;
}

/// x and w in bf16: their products are exact in fp32, so that matmuls of bf16 with sums in fp32 compute what those of
/// fp32 would, with half of the bytes and on tensor cores. Gradients of logits are fp32: each is a sum of terms.
struct HalfRouterLogitsNode final : Node {
  HalfRouterLogitsNode(Parameter& weight, Parameter* bias) : weight(weight), bias(bias) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor terms = terms_of(b.ctx, grad_out[0]);
    if (b.wanted(0)) {
      const Tensor w = repeated(b.ctx, weight.acquire(b.ctx).view());
      grad_in[0] = linear_dgrad(b.ctx, terms, w.view());
    }
    if (uses.in_w.empty()) return;
    saved_terms = SavedTensor(b.ctx, terms, SavePolicy::kKeep);
    if (bias) saved_dy = SavedTensor(b.ctx, grad_out[0], SavePolicy::kKeep);
  }
  void backward_weight(BackwardContext& b) override {
    const Tensor terms = saved_terms.get(b.ctx), x = saved_x.get(b.ctx);
    if (weight.is_trainable()) {
      Tensor dw = b.ctx.empty("router_logits.dw", {terms.size(1), x.size(1)}, DType::kFloat32);
      linear_wgrad_into(b.ctx, terms, x, dw);
      add_up(b.ctx, dw, weight.grad_target(b.ctx));
    }
    if (bias) linear_bias_grad(b.ctx, saved_dy.get(b.ctx), *bias);
    for (SavedTensor* saved : {&saved_terms, &saved_x, &saved_dy}) saved->drop();
  }
  /// The blocks of the three terms are those of one gradient.
  static void add_up(const Context& ctx, const Tensor& blocks, const GradTarget& dw) {
    const int64_t e = dw.view.shape[0];
    launch(ctx, [&](auto& stream) {
      for (int64_t k = 0; k < kTerms; ++k) {
        const Tensor block = blocks.slice(0, k * e, e);
        if (k > 0 || dw.accumulate)
          kernels::accumulate(stream, {.x = block.view(), .y = dw.view});
        else
          kernels::copy(stream, {.x = block.view(), .y = dw.view});
      }
    });
  }
  Parameter& weight;
  Parameter* bias;
  SavedTensor saved_x, saved_terms, saved_dy;
};

struct RouterLogitsNode final : Node {
  RouterLogitsNode(Parameter& weight, Parameter* bias) : weight(weight), bias(bias) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    if (b.wanted(0)) {
      const Tensor w = converted(b.ctx, weight.acquire(b.ctx).view(), grad_out[0].dtype());
      grad_in[0] = converted(b.ctx, linear_dgrad(b.ctx, grad_out[0], w.view()), x_dtype);
    }
    if (!uses.in_w.empty()) saved_dy = SavedTensor(b.ctx, grad_out[0], SavePolicy::kKeep);
  }
  void backward_weight(BackwardContext& b) override {
    const DType dtype = weight.main_grad().dtype();
    linear_wgrad(b.ctx, converted(b.ctx, saved_dy.get(b.ctx), dtype), converted(b.ctx, saved_x.get(b.ctx), dtype),
                 weight, bias);
    saved_dy.drop();
    saved_x.drop();
  }
  Parameter& weight;
  Parameter* bias;
  DType x_dtype = DType::kFloat32;
  SavedTensor saved_x, saved_dy;
};

/// Records a node of either kind, which has saved x for the gradient of the weight.
template <class RouterNode>
void record_logits(Context& ctx, const Tensor& x, const Tensor& rows, Parameter& weight, Parameter* bias,
                   Tensor& logits, const std::function<void(RouterNode&)>& finish) {
  record(ctx, {.in_b = {}, .in_w = {&weight, bias}}, {x.slot}, {&logits}, [&] {
    auto node = std::make_unique<RouterNode>(weight, bias);
    finish(*node);
    if (weight.is_trainable()) node->saved_x = SavedTensor(ctx, rows);
    return node;
  });
}

}  // namespace

Tensor router_logits(Context& ctx, const Tensor& x, Parameter& weight, Parameter* bias, DType dtype) {
  const Tensor rows = x.reshape({num_rows(x), x.size(-1)});
  if (x.dtype() == dtype) return linear(ctx, rows, weight, bias);
  const WeightLease weight_lease = weight.acquire(ctx);
  const OptionalLease bias_lease(ctx, bias);
  if (x.dtype() == DType::kBFloat16 && weight_lease.view().dtype == x.dtype() && dtype == DType::kFloat32) {
    const Tensor b = bias ? converted(ctx, bias_lease.view(), dtype) : Tensor();
    Tensor logits = ctx.empty("router_logits", {rows.size(0), weight.shape()[0]}, dtype);
    linear_forward_into(ctx, rows, weight_lease.view(), b.view(), logits);
    record_logits<HalfRouterLogitsNode>(ctx, x, rows, weight, bias, logits, [](auto&) {});
    return logits;
  }
  const Tensor w = converted(ctx, weight_lease.view(), dtype);
  const Tensor b = bias ? converted(ctx, bias_lease.view(), dtype) : Tensor();
  Tensor logits = linear_forward(ctx, converted(ctx, rows, dtype), w.view(), b.view());
  record_logits<RouterLogitsNode>(ctx, x, rows, weight, bias, logits,
                                  [&](RouterLogitsNode& node) { node.x_dtype = x.dtype(); });
  return logits;
}

}  // namespace megatron
