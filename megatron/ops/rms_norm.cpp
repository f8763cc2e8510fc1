#include "megatron/ops/rms_norm.h"

#include <optional>

#include "megatron/kernels/rms_norm.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

struct RmsNormNode final : Node {
  RmsNormNode(Parameter* gamma, const NormOptions& options) : gamma(gamma), options(options) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor x = saved_x.get(b.ctx), rstd = saved_rstd.get(b.ctx);
    const Tensor dy = gradient_of(x.shape(), grad_out[0]);
    NormGradient gradient(b, "rms_norm.dx", x);
    const OptionalGradTarget dgamma(b.ctx, gamma);
    Tensor workspace =
        b.ctx.workspace("rms_norm.workspace",
                        gamma ? kernels::rms_norm_backward_workspace_bytes(num_rows(x), x.size(-1), x.dtype()) : 0);
    const OptionalLease weight(b.ctx, gamma);
    launch(b.ctx, {.shape = &x.shape()}, [&](auto& stream) {
      kernels::rms_norm_backward(stream, {.x = x.view(),
                                          .gamma = weight.view(),
                                          .rstd = rstd.view(),
                                          .dy = dy.view(),
                                          .dresidual = std::as_const(gradient.gathered).view(),
                                          .dx = gradient.dx.view(),
                                          .dgamma = dgamma.view,
                                          .accumulate = dgamma.accumulate,
                                          .zero_centered_gamma = options.zero_centered_gamma,
                                          .workspace = workspace.view()});
    });
    grad_in[0] = std::move(gradient.dx);
    saved_x.drop();
    saved_rstd.drop();
  }
  Parameter* gamma;
  NormOptions options;
  SavedTensor saved_x, saved_rstd;
};

}  // namespace

Tensor rms_norm(Context& ctx, const Tensor& x, Parameter* gamma, const NormOptions& options) {
  if (gamma) require_columns("rms_norm", x, *gamma);
  Tensor y = ctx.empty_bounded("rms_norm.y", x.shape(), gamma ? gamma->dtype() : x.dtype(), x.count());
  Tensor rstd = ctx.empty("rms_norm.rstd", {num_rows(x)}, statistics_dtype(x.dtype()));
  {
    const OptionalLease weight(ctx, gamma);
    launch(ctx, {.shape = &x.shape()}, [&](auto& stream) {
      kernels::rms_norm_forward(stream, {.x = x.view(),
                                         .gamma = weight.view(),
                                         .y = y.view(),
                                         .rstd = rstd.view(),
                                         .eps = options.eps,
                                         .zero_centered_gamma = options.zero_centered_gamma});
    });
  }
  record(ctx, {.in_b = {gamma}, .in_w = {}}, {x.slot}, {&y}, [&] {
    auto node = std::make_unique<RmsNormNode>(gamma, options);
    node->saved_x = SavedTensor(ctx, x);
    node->saved_rstd = SavedTensor(ctx, rstd);
    return node;
  });
  return y;
}

}  // namespace megatron
