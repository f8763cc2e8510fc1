#include "megatron/ops/activation.h"

#include "megatron/kernels/activation.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

struct ActivationNode final : Node {
  ActivationNode(Parameter* bias, kernels::Activation kind) : bias(bias), kind(kind) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor x = saved_x.get(b.ctx);
    Tensor dx = b.ctx.empty_like("activation.dx", x);
    const OptionalGradTarget dbias(b.ctx, bias);
    Tensor workspace =
        b.ctx.workspace("activation.workspace",
                        bias ? kernels::activation_backward_workspace_bytes(num_rows(x), x.size(-1), x.dtype()) : 0);
    const OptionalLease bias_lease(b.ctx, bias);
    launch(b.ctx, {.shape = &x.shape()}, [&](auto& stream) {
      kernels::activation_backward(stream, {.x = x.view(),
                                            .bias = bias_lease.view(),
                                            .dy = grad_out[0].view(),
                                            .dx = dx.view(),
                                            .dbias = dbias.view,
                                            .accumulate = dbias.accumulate,
                                            .workspace = workspace.view(),
                                            .activation = kind});
    });
    grad_in[0] = std::move(dx);
    saved_x.drop();
  }
  Parameter* bias;
  kernels::Activation kind;
  SavedTensor saved_x;
};

/// Half `index` of the last dimension.
View half(Tensor& x, int index) { return x.slice(-1, index * x.size(-1) / 2, x.size(-1) / 2).view(); }
ConstView half(const Tensor& x, int index) {
  Tensor detached = x.detach();
  return half(detached, index);
}
ConstView half(ConstView vector, int index) {
  if (!vector.defined()) return vector;
  vector.shape[0] /= 2;
  const auto* bytes = static_cast<const std::byte*>(vector.data);
  vector.data = bytes + index * vector.shape[0] * size_of(vector.dtype);
  return vector;
}
View half(View vector, int index) {
  if (!vector.defined()) return vector;
  vector.shape[0] /= 2;
  vector.data = static_cast<std::byte*>(vector.data) + index * vector.shape[0] * size_of(vector.dtype);
  return vector;
}

struct GatedActivationNode final : Node {
  GatedActivationNode(Parameter* bias, kernels::Activation kind, const kernels::GateOptions& options)
      : bias(bias), kind(kind), options(options) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor x = saved_x.get(b.ctx);
    Tensor dx = b.ctx.empty_like("gated_activation.dx", x);
    const OptionalGradTarget dbias(b.ctx, bias);
    Tensor workspace = b.ctx.workspace(
        "gated_activation.workspace",
        bias ? kernels::gated_activation_backward_workspace_bytes(num_rows(x), x.size(-1) / 2, x.dtype()) : 0);
    const OptionalLease bias_lease(b.ctx, bias);
    launch(b.ctx, {.shape = &x.shape()}, [&](auto& stream) {
      kernels::gated_activation_backward(stream, {.gate = half(x, 0),
                                                  .up = half(x, 1),
                                                  .gate_bias = half(bias_lease.view(), 0),
                                                  .up_bias = half(bias_lease.view(), 1),
                                                  .dy = grad_out[0].view(),
                                                  .dgate = half(dx, 0),
                                                  .dup = half(dx, 1),
                                                  .dgate_bias = half(dbias.view, 0),
                                                  .dup_bias = half(dbias.view, 1),
                                                  .accumulate = dbias.accumulate,
                                                  .workspace = workspace.view(),
                                                  .activation = kind,
                                                  .options = options});
    });
    grad_in[0] = std::move(dx);
    saved_x.drop();
  }
  Parameter* bias;
  kernels::Activation kind;
  kernels::GateOptions options;
  SavedTensor saved_x;
};

struct SigmoidGateNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor x = saved_x.get(b.ctx), gate = saved_gate.get(b.ctx);
    Tensor dx = b.ctx.empty_like("sigmoid_gate.dx", x), dgate = b.ctx.empty_like("sigmoid_gate.dgate", gate);
    launch(b.ctx, {.shape = &x.shape()}, [&](auto& stream) {
      kernels::gated_activation_backward(stream, {.gate = gate.reshape(x.shape()).view(),
                                                  .up = x.view(),
                                                  .dy = grad_out[0].view(),
                                                  .dgate = dgate.reshape(x.shape()).view(),
                                                  .dup = dx.view(),
                                                  .activation = kernels::Activation::kSigmoid});
    });
    grad_in[0] = std::move(dx);
    grad_in[1] = std::move(dgate);
    saved_x.drop();
    saved_gate.drop();
  }
  SavedTensor saved_x, saved_gate;
};

}  // namespace

Tensor activation(Context& ctx, const Tensor& x, Parameter* bias, kernels::Activation kind) {
  if (bias) require_columns("activation", x, *bias);
  Tensor y = ctx.empty_like("activation.y", x);
  {
    const OptionalLease bias_lease(ctx, bias);
    launch(ctx, {.shape = &x.shape()}, [&](auto& stream) {
      kernels::activation_forward(stream,
                                  {.x = x.view(), .bias = bias_lease.view(), .y = y.view(), .activation = kind});
    });
  }
  record(ctx, {.in_b = {bias}, .in_w = {}}, {x.slot}, {&y}, [&] {
    auto node = std::make_unique<ActivationNode>(bias, kind);
    node->saved_x = SavedTensor(ctx, x);
    return node;
  });
  return y;
}

Tensor gated_activation(Context& ctx, const Tensor& x, Parameter* bias, kernels::Activation kind,
                        const kernels::GateOptions& options) {
  if (bias) require_columns("gated_activation", x, *bias);
  require<ShapeError>(x.size(-1) % 2 == 0,
                      "[gated_activation] gate and up are the halves of the last dimension: {} is odd.", x.size(-1));
  Shape shape = x.shape();
  shape[-1] /= 2;
  Tensor y = ctx.empty_bounded("gated_activation.y", shape, x.dtype(), x.count());
  {
    const OptionalLease bias_lease(ctx, bias);
    launch(ctx, {.shape = &x.shape()}, [&](auto& stream) {
      kernels::gated_activation_forward(stream, {.gate = half(x, 0),
                                                 .up = half(x, 1),
                                                 .gate_bias = half(bias_lease.view(), 0),
                                                 .up_bias = half(bias_lease.view(), 1),
                                                 .y = y.view(),
                                                 .activation = kind,
                                                 .options = options});
    });
  }
  record(ctx, {.in_b = {bias}, .in_w = {}}, {x.slot}, {&y}, [&] {
    auto node = std::make_unique<GatedActivationNode>(bias, kind, options);
    node->saved_x = SavedTensor(ctx, x);
    return node;
  });
  return y;
}

Tensor sigmoid_gate(Context& ctx, const Tensor& x, const Tensor& gate) {
  require<ShapeError>(gate.num_elements() == x.num_elements() && gate.dtype() == x.dtype(),
                      "[sigmoid_gate] gate {} of {} and x {} of {} must have the same number of elements and dtype.",
                      gate.shape(), name_of(gate.dtype()), x.shape(), name_of(x.dtype()));
  Tensor y = ctx.empty_like("sigmoid_gate.y", x);
  launch(ctx, {.shape = &x.shape()}, [&](auto& stream) {
    kernels::gated_activation_forward(stream, {.gate = gate.detach().reshape(x.shape()).view(),
                                               .up = x.view(),
                                               .y = y.view(),
                                               .activation = kernels::Activation::kSigmoid});
  });
  record(ctx, {}, {x.slot, gate.slot}, {&y}, [&] {
    auto node = std::make_unique<SigmoidGateNode>();
    node->saved_x = SavedTensor(ctx, x);
    node->saved_gate = SavedTensor(ctx, gate);
    return node;
  });
  return y;
}

}  // namespace megatron
