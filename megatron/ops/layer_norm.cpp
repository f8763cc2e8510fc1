#include "megatron/ops/layer_norm.h"

#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/layer_norm.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

struct LayerNormNode final : Node {
  LayerNormNode(Parameter& gamma, Parameter& beta, const NormOptions& options)
      : gamma(gamma), beta(beta), options(options) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor x = saved_x.get(b.ctx), mean = saved_mean.get(b.ctx), rstd = saved_rstd.get(b.ctx);
    const Tensor dy = gradient_of(x.shape(), grad_out[0]);
    NormGradient gradient(b, "layer_norm.dx", x);
    Tensor workspace = b.ctx.workspace(
        "layer_norm.workspace", kernels::layer_norm_backward_workspace_bytes(num_rows(x), x.size(-1), x.dtype()));
    const WeightLease weight = gamma.acquire(b.ctx);
    const OptionalGradTarget dgamma(b.ctx, gamma), dbeta(b.ctx, beta);
    const bool accumulate =
        dgamma.accumulate || dbeta.accumulate;  // one value for both; shared weights may differ in it
    launch(b.ctx, {.shape = &x.shape()}, [&](auto& stream) {
      for (const OptionalGradTarget* target : {&dgamma, &dbeta})
        if (accumulate && !target->accumulate && target->view.defined())
          kernels::fill(stream, {.y = target->view, .value = 0});
      kernels::layer_norm_backward(stream, {.x = x.view(),
                                            .gamma = weight.view(),
                                            .mean = mean.view(),
                                            .rstd = rstd.view(),
                                            .dy = dy.view(),
                                            .dresidual = std::as_const(gradient.gathered).view(),
                                            .dx = gradient.dx.view(),
                                            .dgamma = dgamma.view,
                                            .dbeta = dbeta.view,
                                            .accumulate = accumulate,
                                            .zero_centered_gamma = options.zero_centered_gamma,
                                            .workspace = workspace.view()});
    });
    grad_in[0] = std::move(gradient.dx);
    for (SavedTensor* saved : {&saved_x, &saved_mean, &saved_rstd}) saved->drop();
  }
  Parameter& gamma;
  Parameter& beta;
  NormOptions options;
  SavedTensor saved_x, saved_mean, saved_rstd;
};

}  // namespace

Tensor layer_norm(Context& ctx, const Tensor& x, Parameter& gamma, Parameter& beta, const NormOptions& options) {
  require_columns("layer_norm", x, gamma);
  require_columns("layer_norm", x, beta);
  Tensor y = ctx.empty_bounded("layer_norm.y", x.shape(), gamma.dtype(), x.count());
  Tensor mean = ctx.empty("layer_norm.mean", {num_rows(x)}, statistics_dtype(x.dtype()));
  Tensor rstd = ctx.empty("layer_norm.rstd", {num_rows(x)}, statistics_dtype(x.dtype()));
  {
    const WeightLease weight = gamma.acquire(ctx), offset = beta.acquire(ctx);
    launch(ctx, {.shape = &x.shape()}, [&](auto& stream) {
      kernels::layer_norm_forward(stream, {.x = x.view(),
                                           .gamma = weight.view(),
                                           .beta = offset.view(),
                                           .y = y.view(),
                                           .mean = mean.view(),
                                           .rstd = rstd.view(),
                                           .eps = options.eps,
                                           .zero_centered_gamma = options.zero_centered_gamma});
    });
  }
  record(ctx, {.in_b = {&gamma, &beta}, .in_w = {}}, {x.slot}, {&y}, [&] {
    auto node = std::make_unique<LayerNormNode>(gamma, beta, options);
    node->saved_x = SavedTensor(ctx, x);
    node->saved_mean = SavedTensor(ctx, mean);
    node->saved_rstd = SavedTensor(ctx, rstd);
    return node;
  });
  return y;
}

}  // namespace megatron
