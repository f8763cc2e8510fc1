#include "megatron/bench/step_kernels.h"
#include "megatron/bench/transformer_engine.h"
#include "megatron/kernels/activation.h"
#include "megatron/transformer/mlp.h"

namespace megatron {
namespace {

/// The bias of fc1, and its gradient: undefined without biases.
struct Biases {
  Biases() = default;
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

/// fc1's output, whose halves are gate and up if it is gated, and the gradient of the result.
struct Operands {
  Operands(const Context& ctx, const StepShapes& z, bool is_backward)
      : x(random_tensor(ctx, {z.t, z.fc1_columns()}, z.model.params_dtype)),
        dy(is_backward ? random_tensor(ctx, {z.t, z.f}, z.model.params_dtype, 1, "dy") : Tensor()),
        result(is_backward ? ctx.empty_like("dx", x) : ctx.empty("y", {z.t, z.f}, z.model.params_dtype)) {}
  Tensor x, dy, result;
};

KernelCall gated(const Context& ctx, kernels::Activation kind, const Operands& operands, const Biases& biases) {
  return [=, &ctx, o = operands, b = biases]() mutable {
    const int64_t f = o.x.size(1) / 2;
    const auto forward = [&](auto& stream) {
      kernels::gated_activation_forward(stream, {.gate = o.x.slice(1, 0, f).view(),
                                                 .up = o.x.slice(1, f, f).view(),
                                                 .gate_bias = b.bias_part(0, f),
                                                 .up_bias = b.bias_part(f, f),
                                                 .y = o.result.view(),
                                                 .activation = kind});
    };
    const auto backward = [&](auto& stream) {
      kernels::gated_activation_backward(stream, {.gate = o.x.slice(1, 0, f).view(),
                                                  .up = o.x.slice(1, f, f).view(),
                                                  .gate_bias = b.bias_part(0, f),
                                                  .up_bias = b.bias_part(f, f),
                                                  .dy = o.dy.view(),
                                                  .dgate = o.result.slice(1, 0, f).view(),
                                                  .dup = o.result.slice(1, f, f).view(),
                                                  .dgate_bias = b.gradient_part(0, f),
                                                  .dup_bias = b.gradient_part(f, f),
                                                  .accumulate = true,
                                                  .workspace = b.workspace.view(),
                                                  .activation = kind});
    };
    const OpNote note{.name = "activation", .shape = &o.x.shape()};
    o.dy.defined() ? launch(ctx, note, backward) : launch(ctx, note, forward);
  };
}

KernelCall plain(const Context& ctx, kernels::Activation kind, const Operands& operands, const Biases& biases) {
  return [=, &ctx, o = operands, b = biases]() mutable {
    launch(ctx, {.name = "activation", .shape = &o.x.shape()}, [&](auto& stream) {
      if (o.dy.defined())
        kernels::activation_backward(stream, {.x = o.x.view(),
                                              .bias = std::as_const(b.bias).view(),
                                              .dy = o.dy.view(),
                                              .dx = o.result.view(),
                                              .dbias = b.gradient.view(),
                                              .accumulate = true,
                                              .workspace = b.workspace.view(),
                                              .activation = kind});
      else
        kernels::activation_forward(
            stream, {.x = o.x.view(), .bias = std::as_const(b.bias).view(), .y = o.result.view(), .activation = kind});
    });
  };
}

/// Transformer Engine only has GELU by tanh.
kernels::Activation kind_of_peer(kernels::Activation kind) {
  return kind == kernels::Activation::kGelu ? kernels::Activation::kGeluTanh : kind;
}

PeerCall peer(const Context& ctx, const TransformerEngine& engine, const StepShapes& z, kernels::Activation ours,
              bool is_backward) {
  const bool is_gated = z.model.gated_linear_unit;
  const kernels::Activation kind = kind_of_peer(ours);
  const Operands o(ctx, z, is_backward);
  const Tensor result = ctx.empty_like("result", o.result);
  const EngineTensor x(engine, o.x), dy(engine, o.dy), out(engine, result);
  PeerCall call{.theirs = {},
                .ours = is_gated ? gated(ctx, kind, o, {}) : plain(ctx, kind, o, {}),
                .results = {{is_backward ? "dx" : "y", o.result, result, z.model.params_dtype}}};
  if (is_backward)
    call.theirs = [=, &ctx, function = engine.activation_gradient(kind, is_gated)] {
      launch_engine(ctx, [&](TransformerEngine::Stream stream) { function(dy, x, out, stream); });
    };
  else
    call.theirs = [=, &ctx, function = engine.activation(kind, is_gated)] {
      launch_engine(ctx, [&](TransformerEngine::Stream stream) { function(x, out, stream); });
    };
  return call;
}

std::string note(const StepShapes& z, kernels::Activation kind, bool is_backward) {
  std::string text;
  if (z.model.add_bias_linear) text = is_backward ? "without the bias and its gradient" : "without the bias";
  if (kind_of_peer(kind) != kind) text += text.empty() ? "by tanh, ours by erf" : ", by tanh, ours by erf";
  return text;
}

}  // namespace

void add_activation_cases(const StepShapes& z, const StageParts& stage, std::vector<KernelCase>& cases) {
  const auto calls = static_cast<double>(stage.num_feed_forward * z.num_microbatches);
  const kernels::Activation kind = kernel_of(z.model.activation_func);
  const double half = static_cast<double>(z.t * z.f * size_of(z.model.params_dtype));
  const bool is_gated = z.model.gated_linear_unit;
  const std::string name = is_gated ? "gated activation" : "activation";
  const int forward_halves = is_gated ? 3 : 2, backward_halves = is_gated ? 5 : 3;
  for (const bool is_backward : {false, true})
    add_memory_case({.name = name + (is_backward ? " backward" : " forward"),
                     .calls = calls,
                     .bytes = (is_backward ? backward_halves : forward_halves) * half,
                     .prepare =
                         [=](const Context& ctx) {
                           const Operands operands(ctx, z, is_backward);
                           const Biases biases(ctx, z, z.fc1_columns());
                           return is_gated ? gated(ctx, kind, operands, biases) : plain(ctx, kind, operands, biases);
                         },
                     .peer = [=](const Context& ctx,
                                 const TransformerEngine& engine) { return peer(ctx, engine, z, kind, is_backward); },
                     .peer_note = note(z, kind, is_backward)},
                    cases);
}

}  // namespace megatron
