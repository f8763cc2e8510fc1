#include "megatron/ops/grouped_linear.h"

#include "megatron/kernels/grouped_matmul.h"
#include "megatron/kernels/row_weights.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

/// rows op(weight of their group), with a workspace from the arena.
Tensor multiply(const Context& ctx, std::string_view name, const Tensor& x, const RowGroups& groups, ConstView weight,
                bool transpose) {
  const int64_t n = weight.shape[transpose ? 1 : 2];
  Tensor y = groups.empty_rows(ctx, name, n, x.dtype());
  ctx.device.num_operations += 2 * groups.capacity * weight.shape[1] * weight.shape[2];
  kernels::GroupedMatmulArgs args{
      .a = x.view(), .b = weight, .c = y.view(), .groups = groups.view(), .transpose_b = transpose, .workspace = {}};
  const int64_t bytes =
      with_stream(ctx.device, [&](auto& stream) { return kernels::grouped_matmul_workspace_bytes(stream, args); });
  Tensor workspace = ctx.workspace("grouped_linear.workspace", bytes);
  args.workspace = workspace.view();
  launch(ctx, {.shape = &weight.shape}, [&](auto& stream) { kernels::grouped_matmul(stream, args); });
  return y;
}

struct GroupedLinearNode final : Node {
  GroupedLinearNode(const RowGroups& groups, Parameter& weight) : groups(groups), weight(weight) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    if (b.wanted(0))
      grad_in[0] =
          multiply(b.ctx, "grouped_linear.dx", grad_out[0], groups, weight.acquire(b.ctx).view(), /*transpose=*/false);
    if (!uses.in_w.empty()) saved_dy = SavedTensor(b.ctx, grad_out[0], SavePolicy::kKeep);
  }
  void backward_weight(BackwardContext& b) override {
    const Tensor dy = saved_dy.get(b.ctx), x = saved_x.get(b.ctx);
    const GradTarget dw = weight.grad_target(b.ctx);
    b.ctx.device.num_operations += 2 * groups.capacity * x.size(1) * dy.size(1);
    kernels::GroupedWgradArgs args{.a = dy.view(),
                                   .b = x.view(),
                                   .c = dw.view,
                                   .groups = groups.view(),
                                   .accumulate = dw.accumulate,
                                   .workspace = {}};
    const int64_t bytes =
        with_stream(b.ctx.device, [&](auto& stream) { return kernels::grouped_wgrad_workspace_bytes(stream, args); });
    Tensor workspace = b.ctx.workspace("grouped_linear.dw.workspace", bytes);
    args.workspace = workspace.view();
    launch(b.ctx, {.shape = &weight.shape()}, [&](auto& stream) { kernels::grouped_wgrad(stream, args); });
    saved_dy.drop();
    saved_x.drop();
  }
  RowGroups groups;
  Parameter& weight;
  SavedTensor saved_x, saved_dy;
};

struct GroupedBiasNode final : Node {
  GroupedBiasNode(const RowGroups& groups, Parameter& bias, const Tensor& weights)
      : groups(groups), bias(bias), weights(weights) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = grad_out[0];
    if (bias.is_trainable()) {
      const GradTarget dbias = bias.grad_target(b.ctx);
      launch(b.ctx, [&](auto& stream) {
        kernels::grouped_bias_backward(stream, {.dy = grad_out[0].view(),
                                                .weights = weights.view(),
                                                .groups = groups.view(),
                                                .dbias = dbias.view,
                                                .accumulate = dbias.accumulate});
      });
    }
    if (!weights.defined() || !b.wanted(1)) return;
    Tensor dweights = b.ctx.empty_like("grouped_bias.dweights", weights);
    const WeightLease bias_lease = bias.acquire(b.ctx);
    launch(b.ctx, [&](auto& stream) {
      kernels::grouped_bias_dots(
          stream,
          {.dy = grad_out[0].view(), .bias = bias_lease.view(), .groups = groups.view(), .dots = dweights.view()});
    });
    grad_in[1] = std::move(dweights);
  }
  RowGroups groups;
  Parameter& bias;
  Tensor weights;
};

}  // namespace

Tensor grouped_linear(Context& ctx, const Tensor& x, const RowGroups& groups, Parameter& weight) {
  groups.require_rows("grouped_linear", x);
  require<ShapeError>(
      weight.shape().rank() == 3 && weight.shape()[0] == groups.num_groups() && weight.shape()[2] == x.size(1),
      "[grouped_linear] {} has shape {}; {} groups of rows of {} elements need [groups, out, in].", weight.name(),
      weight.shape(), groups.num_groups(), x.size(1));
  Tensor y = multiply(ctx, "grouped_linear.y", x, groups, weight.acquire(ctx).view(), /*transpose=*/true);
  record(ctx, {.in_b = {}, .in_w = {&weight}}, {x.slot}, {&y}, [&] {
    auto node = std::make_unique<GroupedLinearNode>(groups, weight);
    if (weight.is_trainable()) node->saved_x = SavedTensor(ctx, x);
    return node;
  });
  return y;
}

Tensor grouped_bias(Context& ctx, const Tensor& x, const RowGroups& groups, Parameter& bias, const Tensor& weights) {
  groups.require_rows("grouped_bias", x);
  require<ShapeError>(bias.shape() == Shape{groups.num_groups(), x.size(1)} ||
                          (groups.num_groups() == 1 && bias.shape() == Shape{x.size(1)}),
                      "[grouped_bias] {} has shape {}; {} groups of rows of {} elements need [groups, columns].",
                      bias.name(), bias.shape(), groups.num_groups(), x.size(1));
  Tensor y = ctx.empty_like("grouped_bias.y", x);
  {
    const WeightLease bias_lease = bias.acquire(ctx);
    launch(ctx, [&](auto& stream) {
      kernels::grouped_bias_forward(stream, {.x = x.view(),
                                             .bias = bias_lease.view(),
                                             .weights = weights.view(),
                                             .groups = groups.view(),
                                             .y = y.view()});
    });
  }
  record(ctx, {.in_b = {&bias}, .in_w = {}}, {x.slot, weights.slot}, {&y},
         [&] { return std::make_unique<GroupedBiasNode>(groups, bias, weights); });
  return y;
}

}  // namespace megatron
