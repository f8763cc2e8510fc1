#include "megatron/ops/linear.h"

#include "megatron/kernels/column_sum.h"
#include "megatron/kernels/cuda/matmul/matmul.h"
#include "megatron/kernels/matmul.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

/// [..., n] as [rows, n]; a bounded dimension 0 of several rows each cannot be flattened, and no op makes one.
Tensor as_matrix(const Tensor& x) { return x.reshape({x.num_elements() / x.size(-1), x.size(-1)}); }

Shape with_last(const Shape& shape, int64_t size) {
  Shape result = shape;
  result[-1] = size;
  return result;
}

/// 2 m n k operations, with a workspace from the arena.
void multiply(const Context& ctx, std::string_view name, kernels::MatmulArgs args) {
  const int64_t m = args.c.shape[0], n = args.c.shape[1], k = args.a.shape[args.transpose_a ? 0 : 1];
  const Shape extents{m, n, k};
  ctx.device.num_operations += 2 * m * n * k;
  const int64_t bytes =
      with_stream(ctx.device, [&](auto& stream) { return kernels::matmul_workspace_bytes(stream, args); });
  Tensor workspace = ctx.workspace(name, bytes);
  args.workspace = workspace.view();
  launch(ctx, {.shape = &extents}, [&](auto& stream) { kernels::matmul(stream, args); });
}

struct LinearNode final : Node {
  LinearNode(Parameter& weight, Parameter* bias) : weight(weight), bias(bias) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    if (b.wanted(0)) grad_in[0] = linear_dgrad(b.ctx, grad_out[0], weight.acquire(b.ctx).view());
    if (!uses.in_w.empty()) saved_dy = SavedTensor(b.ctx, grad_out[0], SavePolicy::kKeep);
  }
  void backward_weight(BackwardContext& b) override {
    linear_wgrad(b.ctx, saved_dy.get(b.ctx), saved_x.get(b.ctx), weight, bias);
    saved_dy.drop();
    saved_x.drop();
  }
  Parameter& weight;
  Parameter* bias;
  SavedTensor saved_x, saved_dy;
};

}  // namespace

Tensor linear_forward(const Context& ctx, const Tensor& x, ConstView weight, ConstView bias) {
  Tensor y = ctx.empty_bounded("linear.y", with_last(x.shape(), weight.shape[0]), x.dtype(), x.count());
  linear_forward_into(ctx, x, weight, bias, y);
  return y;
}

void linear_forward_into(const Context& ctx, const Tensor& x, ConstView weight, ConstView bias, Tensor y) {
  require<ShapeError>(x.size(-1) == weight.shape[1], "[linear] a weight of shape {} needs {} columns, x has shape {}.",
                      weight.shape, weight.shape[1], x.shape());
  Tensor y_matrix = as_matrix(y);
  multiply(ctx, "linear.y.workspace",
           {.a = as_matrix(x).view(), .b = weight, .c = y_matrix.view(), .transpose_b = true, .bias = bias});
}

Tensor linear_dgrad(const Context& ctx, const Tensor& dy, ConstView weight) {
  Tensor dx = ctx.empty_bounded("linear.dx", with_last(dy.shape(), weight.shape[1]), dy.dtype(), dy.count());
  linear_dgrad_into(ctx, dy, weight, dx);
  return dx;
}

void linear_dgrad_into(const Context& ctx, const Tensor& dy, ConstView weight, Tensor dx) {
  Tensor dx_matrix = as_matrix(dx);
  multiply(ctx, "linear.dx.workspace", {.a = as_matrix(dy).view(), .b = weight, .c = dx_matrix.view()});
}

void linear_wgrad(const Context& ctx, const Tensor& dy, const Tensor& x, Parameter& weight, Parameter* bias) {
  if (weight.is_trainable()) {
    const GradTarget dw = weight.grad_target(ctx);
    multiply(ctx, "linear.dw.workspace",
             {.a = as_matrix(dy).view(),
              .b = as_matrix(x).view(),
              .c = dw.view,
              .transpose_a = true,
              .accumulate = dw.accumulate});
  }
  if (bias) linear_bias_grad(ctx, dy, *bias);
}

void linear_wgrad_into(const Context& ctx, const Tensor& dy, const Tensor& x, Tensor dw) {
  multiply(ctx, "linear.dw.workspace",
           {.a = as_matrix(dy).view(), .b = as_matrix(x).view(), .c = dw.view(), .transpose_a = true});
}

void linear_bias_grad(const Context& ctx, const Tensor& dy, Parameter& bias) {
  if (!bias.is_trainable()) return;
  const Tensor dy_matrix = as_matrix(dy);
  const GradTarget db = bias.grad_target(ctx);
  const int64_t workspace_bytes = kernels::column_sum_workspace_bytes(dy_matrix.size(0), dy_matrix.size(1), dy.dtype());
  Tensor workspace = ctx.workspace("linear.db.workspace", workspace_bytes);
  launch(ctx, {.name = "column_sum", .shape = &dy_matrix.shape()}, [&](auto& stream) {
    kernels::column_sum(
        stream, {.x = dy_matrix.view(), .out = db.view, .accumulate = db.accumulate, .workspace = workspace.view()});
  });
}

Tensor linear(Context& ctx, const Tensor& x, Parameter& weight, Parameter* bias) {
  Tensor y;
  {
    const WeightLease weight_lease = weight.acquire(ctx);
    const OptionalLease bias_lease(ctx, bias);
    y = linear_forward(ctx, x, weight_lease.view(), bias_lease.view());
  }
  record(ctx, {.in_b = {}, .in_w = {&weight, bias}}, {x.slot}, {&y}, [&] {
    auto node = std::make_unique<LinearNode>(weight, bias);
    if (weight.is_trainable()) node->saved_x = SavedTensor(ctx, x);
    return node;
  });
  return y;
}

}  // namespace megatron
