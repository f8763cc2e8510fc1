#include "megatron/ops/weighted_rows.h"

#include "megatron/kernels/cuda/activation.h"
#include "megatron/kernels/row_weights.h"
#include "megatron/ops/activation.h"

namespace megatron {
namespace {

void launch_scale(const Context& ctx, const Tensor& x, const Tensor& weights, Tensor& y) {
  launch(ctx, {.name = "scale_rows"},
         [&](auto& stream) { kernels::scale_rows(stream, {.x = x.view(), .weights = weights.view(), .y = y.view()}); });
}

Tensor dots(const Context& ctx, const Tensor& a, const Tensor& b, const Tensor& weights) {
  Tensor y = ctx.empty_like("scale_rows.dweights", weights);
  launch(ctx, {.name = "row_dots"},
         [&](auto& stream) { kernels::row_dots(stream, {.a = a.view(), .b = b.view(), .dots = y.view()}); });
  return y;
}

struct ScaleRowsNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor x = saved_x.get(b.ctx), weights = saved_weights.get(b.ctx);
    if (b.wanted(1)) grad_in[1] = dots(b.ctx, grad_out[0], x, weights);
    if (b.wanted(0)) {
      grad_in[0] = b.ctx.empty_like("scale_rows.dx", x);
      launch_scale(b.ctx, grad_out[0], weights, grad_in[0]);
    }
    saved_x.drop();
    saved_weights.drop();
  }
  SavedTensor saved_x, saved_weights;
};

/// Half `index` of the columns.
Tensor half_of_rows(const Tensor& x, int64_t index) {
  return x.detach().slice(-1, index * x.size(-1) / 2, x.size(-1) / 2);
}

/// The activation without weights.
Tensor activated(const Context& ctx, const Tensor& x, const ActivationChoice& choice) {
  const Shape shape{x.size(0), choice.is_gated ? x.size(1) / 2 : x.size(1)};
  Tensor y = ctx.empty_bounded("weighted_activation.y", shape, x.dtype(), x.count());
  launch(ctx, {.shape = &x.shape()}, [&](auto& stream) {
    if (!choice.is_gated)
      return kernels::activation_forward(stream, {.x = x.view(), .bias = {}, .y = y.view(), .activation = choice.kind});
    kernels::gated_activation_forward(stream, {.gate = half_of_rows(x, 0).view(),
                                               .up = half_of_rows(x, 1).view(),
                                               .gate_bias = {},
                                               .up_bias = {},
                                               .y = y.view(),
                                               .activation = choice.kind,
                                               .options = choice.gate});
  });
  return y;
}

void differentiate(const Context& ctx, const Tensor& x, const Tensor& dy, const ActivationChoice& choice, Tensor& dx) {
  launch(ctx, {.shape = &x.shape()}, [&](auto& stream) {
    if (!choice.is_gated)
      return kernels::activation_backward(stream, {.x = x.view(),
                                                   .bias = {},
                                                   .dy = dy.view(),
                                                   .dx = dx.view(),
                                                   .dbias = {},
                                                   .workspace = {},
                                                   .activation = choice.kind});
    Tensor dgate = half_of_rows(dx, 0), dup = half_of_rows(dx, 1);
    kernels::gated_activation_backward(stream, {.gate = half_of_rows(x, 0).view(),
                                                .up = half_of_rows(x, 1).view(),
                                                .gate_bias = {},
                                                .up_bias = {},
                                                .dy = dy.view(),
                                                .dgate = dgate.view(),
                                                .dup = dup.view(),
                                                .dgate_bias = {},
                                                .dup_bias = {},
                                                .workspace = {},
                                                .activation = choice.kind,
                                                .options = choice.gate});
  });
}

struct WeightedActivationNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor x = saved_x.get(b.ctx), weights = saved_weights.get(b.ctx);
    Tensor y = activated(b.ctx, x, choice);
    if (b.wanted(1)) grad_in[1] = dots(b.ctx, grad_out[0], y, weights);
    if (b.wanted(0)) {
      launch_scale(b.ctx, grad_out[0], weights, y);  // the gradient of the plain activation
      grad_in[0] = b.ctx.empty_like("weighted_activation.dx", x);
      differentiate(b.ctx, x, y, choice, grad_in[0]);
    }
    saved_x.drop();
    saved_weights.drop();
  }
  ActivationChoice choice;
  SavedTensor saved_x, saved_weights;
};

void require_weights(std::string_view op, const Tensor& x, const Tensor& weights) {
  require<ShapeError>(x.shape().rank() == 2 && weights.shape() == Shape{x.size(0)},
                      "[{}] weights of shape {} for rows of shape {}: there is one for each row.", op, weights.shape(),
                      x.shape());
}

}  // namespace

Tensor scale_rows(Context& ctx, const Tensor& x, const Tensor& weights) {
  require_weights("scale_rows", x, weights);
  Tensor y = ctx.empty_like("scale_rows.y", x);
  launch_scale(ctx, x, weights, y);
  record(ctx, {}, {x.slot, weights.slot}, {&y}, [&] {
    auto node = std::make_unique<ScaleRowsNode>();
    node->saved_x = SavedTensor(ctx, x);
    node->saved_weights = SavedTensor(ctx, weights);
    return node;
  });
  return y;
}

Tensor weighted_activation(Context& ctx, const Tensor& x, const Tensor& weights, const ActivationChoice& choice) {
  if (!weights.defined())
    return choice.is_gated ? gated_activation(ctx, x, nullptr, choice.kind, choice.gate)
                           : activation(ctx, x, nullptr, choice.kind);
  require_weights("weighted_activation", x, weights);
  require<ShapeError>(!choice.is_gated || x.size(1) % 2 == 0,
                      "[weighted_activation] gate and up are the halves of a row: {} elements are odd.", x.size(1));
  Tensor y = activated(ctx, x, choice);
  launch_scale(ctx, y, weights, y);
  record(ctx, {}, {x.slot, weights.slot}, {&y}, [&] {
    auto node = std::make_unique<WeightedActivationNode>();
    node->choice = choice;
    node->saved_x = SavedTensor(ctx, x);
    node->saved_weights = SavedTensor(ctx, weights);
    return node;
  });
  return y;
}

}  // namespace megatron
