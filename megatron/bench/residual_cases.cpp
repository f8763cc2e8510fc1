#include "megatron/bench/step_kernels.h"
#include "megatron/kernels/column_sum.h"
#include "megatron/kernels/dropout.h"

namespace megatron {
namespace {

kernels::DropoutMask mask_of(const Context& ctx, const StepShapes& z) {
  return {
      .rate = z.model.hidden_dropout, .key = ctx.key, .state = &ctx.step, .rows = {.sequence_length = z.s, .b = z.b}};
}

KernelCall add_forward(const Context& ctx, const StepShapes& z, bool has_bias, bool has_residual) {
  Tensor x = random_tensor(ctx, {z.rows, z.h}, z.model.params_dtype);
  Tensor residual = has_residual ? random_tensor(ctx, {z.rows, z.h}, z.hidden_dtype()) : Tensor();
  Tensor bias = has_bias ? random_tensor(ctx, {z.h}, z.model.params_dtype) : Tensor();
  Tensor y = ctx.empty("y", {z.rows, z.h}, z.hidden_dtype());
  return [=, &ctx, mask = mask_of(ctx, z)]() mutable {
    launch(ctx, {.name = "bias_dropout_add", .shape = &x.shape()}, [&](auto& stream) {
      kernels::bias_dropout_add_forward(
          stream, {.x = x.view(), .bias = bias.view(), .residual = residual.view(), .y = y.view(), .dropout = mask});
    });
  };
}

/// Otherwise the gradient of x is dy itself.
bool writes_gradient(const StepShapes& z) {
  return z.model.hidden_dropout > 0 || z.hidden_dtype() != z.model.params_dtype;
}

KernelCall add_backward(const Context& ctx, const StepShapes& z, bool has_bias) {
  Tensor dy = random_tensor(ctx, {z.rows, z.h}, z.hidden_dtype());
  Tensor dx = writes_gradient(z) ? ctx.empty("dx", {z.rows, z.h}, z.model.params_dtype) : Tensor();
  Tensor dbias = has_bias ? constant_tensor(ctx, {z.h}, z.gradient_dtype, 0) : Tensor();
  Tensor workspace = ctx.workspace(
      "workspace",
      has_bias ? kernels::bias_dropout_add_backward_workspace_bytes(z.rows, z.h, z.model.params_dtype) : 0);
  return [=, &ctx, mask = mask_of(ctx, z)]() mutable {
    launch(ctx, {.name = "bias_dropout_add", .shape = &dy.shape()}, [&](auto& stream) {
      kernels::bias_dropout_add_backward(stream, {.dy = dy.view(),
                                                  .dx = dx.view(),
                                                  .dbias = dbias.view(),
                                                  .accumulate = has_bias,
                                                  .workspace = workspace.view(),
                                                  .dropout = mask});
    });
  };
}

KernelCall bias_gradient(const Context& ctx, const StepShapes& z, int64_t columns) {
  const DType dtype = z.model.params_dtype;
  Tensor dy = random_tensor(ctx, {z.t, columns}, dtype);
  Tensor db = constant_tensor(ctx, {columns}, z.gradient_dtype, 0);
  Tensor workspace = ctx.workspace("workspace", kernels::column_sum_workspace_bytes(z.t, columns, dtype));
  return [=, &ctx]() mutable {
    launch(ctx, {.name = "column_sum", .shape = &dy.shape()}, [&](auto& stream) {
      kernels::column_sum(stream,
                          {.x = dy.view(), .out = db.view(), .accumulate = true, .workspace = workspace.view()});
    });
  };
}

}  // namespace

void add_residual_cases(const StepShapes& z, const StageParts& stage, std::vector<KernelCase>& cases) {
  const auto attention = static_cast<double>(stage.num_attention * z.num_microbatches);
  const auto blocks = static_cast<double>(stage.num_residual_blocks() * z.num_microbatches);
  const auto elements = static_cast<double>(z.rows * z.h);
  const auto x = elements * static_cast<double>(size_of(z.model.params_dtype));
  const auto hidden = elements * static_cast<double>(size_of(z.hidden_dtype()));
  const bool has_bias = z.model.add_bias_linear, drops = z.model.hidden_dropout > 0;
  add_memory_case({.name = "bias, dropout, add forward",
                   .calls = blocks,
                   .bytes = x + 2 * hidden,
                   .prepare = [=](const Context& ctx) { return add_forward(ctx, z, has_bias, true); }},
                  cases);
  add_memory_case({.name = "bias, dropout, add backward",
                   .calls = has_bias || writes_gradient(z) ? blocks : 0,
                   .bytes = (writes_gradient(z) ? x : 0) + hidden,
                   .prepare = [=](const Context& ctx) { return add_backward(ctx, z, has_bias); }},
                  cases);
  const double embeddings = stage.has_embedding && drops ? static_cast<double>(z.num_microbatches) : 0;
  add_memory_case({.name = "embedding dropout forward",
                   .calls = embeddings,
                   .bytes = x + hidden,
                   .prepare = [=](const Context& ctx) { return add_forward(ctx, z, false, false); }},
                  cases);
  add_memory_case({.name = "embedding dropout backward",
                   .calls = embeddings,
                   .bytes = x + hidden,
                   .prepare = [=](const Context& ctx) { return add_backward(ctx, z, false); }},
                  cases);
  add_memory_case({.name = "qkv bias gradient",
                   .calls = has_bias || z.model.add_qkv_bias ? attention : 0,
                   .bytes = static_cast<double>(z.t * z.qkv_columns() * size_of(z.model.params_dtype)),
                   .prepare = [=](const Context& ctx) { return bias_gradient(ctx, z, z.qkv_columns()); }},
                  cases);
}

}  // namespace megatron
