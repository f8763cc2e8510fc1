#include "megatron/bench/step_kernels.h"
#include "megatron/kernels/activation.h"
#include "megatron/kernels/cuda/activation.h"
#include "megatron/transformer/mlp.h"

namespace megatron {
namespace {

/// Of fc1, and its gradient: undefined without biases.
struct Biases {
  Biases(const Context& ctx, const StepShapes& z, int64_t columns) {
    if (!z.model.add_bias_linear) return;
    bias = random_tensor(ctx, {columns}, z.model.params_dtype);
    gradient = constant_tensor(ctx, {columns}, z.gradient_dtype, 0);
    workspace =
        ctx.workspace("workspace", kernels::activation_backward_workspace_bytes(z.t, columns, z.model.params_dtype));
  }
  ConstView bias_part(int64_t begin, int64_t length) const {
    return bias.defined() ? std::as_const(bias).slice(0, begin, length).view() : ConstView{};
  }
  View gradient_part(int64_t begin, int64_t length) const {
    return gradient.defined() ? gradient.slice(0, begin, length).view() : View{};
  }
  Tensor bias, gradient, workspace;
};

KernelCall gated_forward(const Context& ctx, const StepShapes& z, kernels::Activation kind) {
  Tensor x = random_tensor(ctx, {z.t, 2 * z.f}, z.model.params_dtype);
  Tensor y = ctx.empty("y", {z.t, z.f}, z.model.params_dtype);
  return [=, &ctx, b = Biases(ctx, z, 2 * z.f)]() mutable {
    const int64_t f = y.size(1);
    launch(ctx, {.name = "activation", .shape = &x.shape()}, [&](auto& stream) {
      kernels::gated_activation_forward(stream, {.gate = x.slice(1, 0, f).view(),
                                                 .up = x.slice(1, f, f).view(),
                                                 .gate_bias = b.bias_part(0, f),
                                                 .up_bias = b.bias_part(f, f),
                                                 .y = y.view(),
                                                 .activation = kind});
    });
  };
}

KernelCall gated_backward(const Context& ctx, const StepShapes& z, kernels::Activation kind) {
  Tensor x = random_tensor(ctx, {z.t, 2 * z.f}, z.model.params_dtype), dx = ctx.empty_like("dx", x);
  Tensor dy = random_tensor(ctx, {z.t, z.f}, z.model.params_dtype);
  return [=, &ctx, b = Biases(ctx, z, 2 * z.f)]() mutable {
    const int64_t f = dy.size(1);
    launch(ctx, {.name = "activation", .shape = &x.shape()}, [&](auto& stream) {
      kernels::gated_activation_backward(stream, {.gate = x.slice(1, 0, f).view(),
                                                  .up = x.slice(1, f, f).view(),
                                                  .gate_bias = b.bias_part(0, f),
                                                  .up_bias = b.bias_part(f, f),
                                                  .dy = dy.view(),
                                                  .dgate = dx.slice(1, 0, f).view(),
                                                  .dup = dx.slice(1, f, f).view(),
                                                  .dgate_bias = b.gradient_part(0, f),
                                                  .dup_bias = b.gradient_part(f, f),
                                                  .accumulate = true,
                                                  .workspace = b.workspace.view(),
                                                  .activation = kind});
    });
  };
}

KernelCall plain_activation(const Context& ctx, const StepShapes& z, kernels::Activation kind, bool is_backward) {
  Tensor x = random_tensor(ctx, {z.t, z.f}, z.model.params_dtype), y = ctx.empty_like("y", x);
  Tensor dy = is_backward ? random_tensor(ctx, {z.t, z.f}, z.model.params_dtype) : Tensor();
  return [=, &ctx, b = Biases(ctx, z, z.f)]() mutable {
    launch(ctx, {.name = "activation", .shape = &x.shape()}, [&](auto& stream) {
      if (is_backward)
        kernels::activation_backward(stream, {.x = x.view(),
                                              .bias = std::as_const(b.bias).view(),
                                              .dy = dy.view(),
                                              .dx = y.view(),
                                              .dbias = b.gradient.view(),
                                              .accumulate = true,
                                              .workspace = b.workspace.view(),
                                              .activation = kind});
      else
        kernels::activation_forward(
            stream, {.x = x.view(), .bias = std::as_const(b.bias).view(), .y = y.view(), .activation = kind});
    });
  };
}

}  // namespace

void add_activation_cases(const StepShapes& z, const StageParts& stage, std::vector<KernelCase>& cases) {
  const auto layers = static_cast<double>(stage.num_layers * z.num_microbatches);
  const kernels::Activation kind = kernel_of(z.model.activation_func);
  const double half = static_cast<double>(z.t * z.f * size_of(z.model.params_dtype));
  if (!z.model.gated_linear_unit) {
    for (const bool is_backward : {false, true})
      add_memory_case({.name = is_backward ? "activation backward" : "activation forward",
                       .calls = layers,
                       .bytes = (is_backward ? 3 : 2) * half,
                       .prepare = [=](const Context& ctx) { return plain_activation(ctx, z, kind, is_backward); }},
                      cases);
    return;
  }
  add_memory_case({.name = "gated activation forward",
                   .calls = layers,
                   .bytes = 3 * half,
                   .prepare = [=](const Context& ctx) { return gated_forward(ctx, z, kind); }},
                  cases);
  add_memory_case({.name = "gated activation backward",
                   .calls = layers,
                   .bytes = 5 * half,
                   .prepare = [=](const Context& ctx) { return gated_backward(ctx, z, kind); }},
                  cases);
}

}  // namespace megatron
