#include "megatron/ops/bias_dropout_add.h"

#include "megatron/kernels/dropout.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

/// Dropout is active in training only.
kernels::DropoutMask mask_of(const Context& ctx, const DropoutOptions& options) {
  if (!ctx.is_training() || options.rate == 0) return {};
  require(!options.rows.list, "[dropout] a list of rows must live until backward: give it as row_list.");
  RowMap rows = options.rows;
  if (options.row_list.defined()) rows.list = options.row_list.data<int32_t>();
  return {.rate = options.rate,
          .key = ctx.key.at(options.path),
          .state = &ctx.step,
          .rows = rows,
          .first_feature = options.first_feature};
}

struct BiasDropoutAddNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor& dy = grad_out[0];
    if (b.wanted(1)) grad_in[1] = dy;  // the residual's gradient is dy itself
    const bool is_identity = mask.rate == 0 && dy.dtype() == dtype;
    grad_in[0] = is_identity ? dy : b.ctx.empty_bounded("bias_dropout_add.dx", dy.shape(), dtype, dy.count());
    if (is_identity && !bias) return;
    const OptionalGradTarget dbias(b.ctx, bias);
    Tensor workspace = b.ctx.workspace(
        "bias_dropout_add.workspace",
        bias ? kernels::bias_dropout_add_backward_workspace_bytes(num_rows(dy), dy.size(-1), dtype) : 0);
    launch(b.ctx, {.shape = &dy.shape()}, [&](auto& stream) {
      kernels::bias_dropout_add_backward(stream, {.dy = dy.view(),
                                                  .dx = is_identity ? View{} : grad_in[0].view(),
                                                  .dbias = dbias.view,
                                                  .accumulate = dbias.accumulate,
                                                  .workspace = workspace.view(),
                                                  .dropout = mask});
    });
  }
  Parameter* bias = nullptr;
  kernels::DropoutMask mask;
  Tensor row_list;                // for the mask
  DType dtype = DType::kFloat32;  // of x
};

Tensor apply(Context& ctx, const Tensor& x, Parameter* bias, const Tensor& residual, const DropoutOptions& options) {
  Tensor y =
      ctx.empty_bounded("bias_dropout_add.y", x.shape(), residual.defined() ? residual.dtype() : x.dtype(), x.count());
  const kernels::DropoutMask mask = mask_of(ctx, options);
  {
    const OptionalLease bias_lease(ctx, bias);
    launch(ctx, {.shape = &x.shape()}, [&](auto& stream) {
      kernels::bias_dropout_add_forward(
          stream,
          {.x = x.view(), .bias = bias_lease.view(), .residual = residual.view(), .y = y.view(), .dropout = mask});
    });
  }
  record(ctx, {.in_b = {bias}, .in_w = {}}, {x.slot, residual.slot}, {&y}, [&] {
    auto node = std::make_unique<BiasDropoutAddNode>();
    node->bias = bias;
    node->mask = mask;
    node->row_list = options.row_list;
    node->dtype = x.dtype();
    return node;
  });
  return y;
}

}  // namespace

Tensor dropout(Context& ctx, const Tensor& x, const DropoutOptions& options) {
  if (!ctx.is_training() || options.rate == 0) return x;
  return apply(ctx, x, nullptr, {}, options);
}

Tensor bias_dropout_add(Context& ctx, const Tensor& x, Parameter* bias, const Tensor& residual,
                        const DropoutOptions& options) {
  if (bias) require_columns("bias_dropout_add", x, *bias);
  require<ShapeError>(x.shape() == residual.shape(), "[bias_dropout_add] x has shape {}, the residual {}.", x.shape(),
                      residual.shape());
  require_same_extent("bias_dropout_add", x, residual);
  return apply(ctx, x, bias, residual, options);
}

}  // namespace megatron
