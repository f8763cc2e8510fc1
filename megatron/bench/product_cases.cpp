#include <algorithm>

#include "megatron/bench/step_kernels.h"
#include "megatron/kernels/cuda/matmul/matmul.h"
#include "megatron/kernels/matmul.h"
#include "megatron/tensor_parallel/lm_head_loss.h"

namespace megatron {
namespace {

/// Operands of one matmul; the views of `args` are set when it runs.
KernelCall product(const Context& ctx, const Tensor& a, const Tensor& b, Tensor c, const Tensor& bias,
                   const kernels::MatmulArgs& form) {
  kernels::MatmulArgs args = form;
  args.a = a.view();
  args.b = b.view();
  args.c = c.view();
  if (bias.defined()) args.bias = bias.view();
  const int64_t bytes =
      with_stream(ctx.device, [&](auto& stream) { return kernels::matmul_workspace_bytes(stream, args); });
  Tensor workspace = ctx.workspace("workspace", bytes);
  if (workspace.defined()) args.workspace = workspace.view();
  return [&ctx, args, a, b, c, bias, workspace] { launch(ctx, [&](auto& stream) { kernels::matmul(stream, args); }); };
}

double tensor_bytes(int64_t rows, int64_t columns, DType dtype) {
  return static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(size_of(dtype));
}

}  // namespace

std::vector<KernelCase> linear_cases(const LinearShape& z, DType dtype, DType of_gradient) {
  const double operations = 2.0 * static_cast<double>(z.m) * static_cast<double>(z.n) * static_cast<double>(z.k);
  const double x = tensor_bytes(z.m, z.k, dtype), w = tensor_bytes(z.n, z.k, dtype), y = tensor_bytes(z.m, z.n, dtype);
  const double dw = tensor_bytes(z.n, z.k, of_gradient) * (z.accumulates ? 2 : 1);
  constexpr double kStd = 0.02;
  const auto random = [dtype](const Context& ctx, int64_t rows, int64_t columns) {
    return random_tensor(ctx, {rows, columns}, dtype, kStd);
  };
  KernelCase forward{.name = z.name + " forward", .kind = KernelKind::kProduct, .operations = operations};
  forward.bytes = x + w + y;
  forward.prepare = [=](const Context& ctx) {
    return product(ctx, random(ctx, z.m, z.k), random(ctx, z.n, z.k), ctx.empty("y", {z.m, z.n}, dtype),
                   z.has_bias ? random_tensor(ctx, {z.n}, dtype, kStd) : Tensor(), {.transpose_b = true});
  };
  KernelCase dgrad{.name = z.name + " dgrad", .kind = KernelKind::kProduct, .operations = operations};
  dgrad.bytes = y + w + x;
  dgrad.prepare = [=](const Context& ctx) {
    return product(ctx, random(ctx, z.m, z.n), random(ctx, z.n, z.k), ctx.empty("dx", {z.m, z.k}, dtype), {}, {});
  };
  KernelCase wgrad{.name = z.name + " wgrad", .kind = KernelKind::kProduct, .operations = operations};
  wgrad.bytes = y + x + dw;
  wgrad.prepare = [=](const Context& ctx) {
    return product(ctx, random(ctx, z.m, z.n), random(ctx, z.m, z.k), constant_tensor(ctx, {z.n, z.k}, of_gradient, 0),
                   {}, {.transpose_a = true, .accumulate = z.accumulates});
  };
  return {forward, dgrad, wgrad};
}

std::vector<KernelCase> product_cases(const StepShapes& z, const StageParts& stage) {
  std::vector<KernelCase> cases;
  const auto add = [&](const LinearShape& shape, double calls) {
    if (calls == 0) return;
    for (KernelCase& kernel : linear_cases(shape, z.model.params_dtype, z.gradient_dtype)) {
      kernel.calls = calls * static_cast<double>(z.num_microbatches);
      cases.push_back(std::move(kernel));
    }
  };
  const bool accumulates = z.num_microbatches > 1, bias = z.model.add_bias_linear;
  const auto layer = [&](int64_t calls, const char* name, int64_t n, int64_t k, bool has_bias) {
    add({.name = name, .m = z.t, .n = n, .k = k, .has_bias = has_bias, .accumulates = accumulates},
        static_cast<double>(calls));
  };
  layer(stage.num_attention, "qkv", z.qkv_columns(), z.h, bias || z.model.add_qkv_bias);
  layer(stage.num_attention, "proj", z.h, z.n * z.d, false);          // its bias is added with the residual
  layer(stage.num_feed_forward, "fc1", z.fc1_columns(), z.h, false);  // the activation adds it
  layer(stage.num_feed_forward, "fc2", z.h, z.f, false);
  std::ranges::move(expert_product_cases(z, stage), std::back_inserter(cases));
  const LmHeadChunks chunks(z.s, z.b, z.v);
  add({.name = "output", .m = chunks.length * z.b, .n = z.v, .k = z.h, .accumulates = accumulates || chunks.num > 1},
      stage.has_head ? static_cast<double>(z.s) / static_cast<double>(chunks.length) : 0);
  return cases;
}

}  // namespace megatron
