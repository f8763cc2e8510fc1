#include "megatron/bench/step_kernels.h"
#include "megatron/kernels/cuda/layer_norm.h"
#include "megatron/kernels/cuda/rms_norm.h"
#include "megatron/kernels/layer_norm.h"
#include "megatron/kernels/rms_norm.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

/// Rows of normalised vectors.
struct NormShape {
  std::string name;
  int64_t rows, size;
  bool is_layer_norm;
  DType dtype, y_dtype, gradient_dtype;
  bool has_residual;  // backward adds the gradient that passes the norm by
};

OpNote note_of(bool is_layer_norm, const Tensor& x) {
  return {.name = is_layer_norm ? "layer_norm" : "rms_norm", .shape = &x.shape()};
}

KernelCall norm_forward(const Context& ctx, const NormShape& z) {
  Tensor x = random_tensor(ctx, {z.rows, z.size}, z.dtype), y = ctx.empty("y", x.shape(), z.y_dtype);
  Tensor gamma = constant_tensor(ctx, {z.size}, z.y_dtype, 1), beta = constant_tensor(ctx, {z.size}, z.y_dtype, 0);
  Tensor mean = ctx.empty("mean", {z.rows}, statistics_dtype(z.dtype)), rstd = ctx.empty_like("rstd", mean);
  return [=, &ctx, is_layer_norm = z.is_layer_norm]() mutable {
    launch(ctx, note_of(is_layer_norm, x), [&](auto& stream) {
      if (is_layer_norm)
        kernels::layer_norm_forward(stream, {.x = x.view(),
                                             .gamma = gamma.view(),
                                             .beta = beta.view(),
                                             .y = y.view(),
                                             .mean = mean.view(),
                                             .rstd = rstd.view()});
      else
        kernels::rms_norm_forward(stream, {.x = x.view(), .gamma = gamma.view(), .y = y.view(), .rstd = rstd.view()});
    });
  };
}

KernelCall norm_backward(const Context& ctx, const NormShape& z) {
  Tensor x = random_tensor(ctx, {z.rows, z.size}, z.dtype), dy = random_tensor(ctx, {z.rows, z.size}, z.y_dtype);
  Tensor past = z.has_residual ? random_tensor(ctx, {z.rows, z.size}, z.dtype) : Tensor();
  Tensor dx = ctx.empty_like("dx", x), gamma = constant_tensor(ctx, {z.size}, z.y_dtype, 1);
  Tensor mean = constant_tensor(ctx, {z.rows}, statistics_dtype(z.dtype), 0);
  Tensor rstd = constant_tensor(ctx, {z.rows}, statistics_dtype(z.dtype), 1);
  Tensor dgamma = constant_tensor(ctx, {z.size}, z.gradient_dtype, 0);
  Tensor dbeta = constant_tensor(ctx, {z.size}, z.gradient_dtype, 0);
  Tensor workspace = ctx.workspace("workspace", kernels::layer_norm_backward_workspace_bytes(z.rows, z.size, z.dtype));
  return [=, &ctx, is_layer_norm = z.is_layer_norm]() mutable {
    const ConstView passed = past.defined() ? std::as_const(past).view() : ConstView{};
    launch(ctx, note_of(is_layer_norm, x), [&](auto& stream) {
      if (is_layer_norm)
        kernels::layer_norm_backward(stream, {.x = x.view(),
                                              .gamma = gamma.view(),
                                              .mean = mean.view(),
                                              .rstd = rstd.view(),
                                              .dy = dy.view(),
                                              .dresidual = passed,
                                              .dx = dx.view(),
                                              .dgamma = dgamma.view(),
                                              .dbeta = dbeta.view(),
                                              .accumulate = true,
                                              .workspace = workspace.view()});
      else
        kernels::rms_norm_backward(stream, {.x = x.view(),
                                            .gamma = gamma.view(),
                                            .rstd = rstd.view(),
                                            .dy = dy.view(),
                                            .dresidual = passed,
                                            .dx = dx.view(),
                                            .dgamma = dgamma.view(),
                                            .accumulate = true,
                                            .workspace = workspace.view()});
    });
  };
}

/// @param calls  in a step
void add_norm(const NormShape& z, double calls, std::vector<KernelCase>& cases) {
  const auto elements = static_cast<double>(z.rows * z.size);
  const auto x = elements * static_cast<double>(size_of(z.dtype)),
             y = elements * static_cast<double>(size_of(z.y_dtype));
  add_memory_case({.name = z.name + " forward",
                   .calls = calls,
                   .bytes = x + y,
                   .prepare = [z](const Context& ctx) { return norm_forward(ctx, z); }},
                  cases);
  add_memory_case({.name = z.name + " backward",
                   .calls = calls,
                   .bytes = y + (z.has_residual ? 3 : 2) * x,
                   .prepare = [z](const Context& ctx) { return norm_backward(ctx, z); }},
                  cases);
}

}  // namespace

void add_norm_cases(const StepShapes& z, const StageParts& stage, std::vector<KernelCase>& cases) {
  const auto layers = static_cast<double>(stage.num_layers * z.num_microbatches);
  const DType dtype = z.model.params_dtype, hidden = z.hidden_dtype();
  const bool is_layer_norm = z.model.normalization == Normalization::kLayerNorm;
  NormShape norm{.name = is_layer_norm ? "layer norm" : "rms norm", .rows = z.rows, .size = z.h};
  norm.is_layer_norm = is_layer_norm;
  norm.dtype = hidden, norm.y_dtype = dtype, norm.gradient_dtype = z.gradient_dtype;
  norm.has_residual = true;
  add_norm(norm, 2 * layers, cases);
  norm.name = "final norm";
  norm.has_residual = false;
  add_norm(norm, stage.has_head ? static_cast<double>(z.num_microbatches) : 0, cases);
  if (!z.has_norms_of_heads()) return;
  norm.size = z.d;
  norm.is_layer_norm = is_layer_norm && z.model.qk_layernorm;
  norm.dtype = dtype;
  norm.name = "query norm", norm.rows = z.t * z.n;
  add_norm(norm, layers, cases);
  norm.name = "key norm", norm.rows = z.t * z.g;
  add_norm(norm, layers, cases);
}

}  // namespace megatron
