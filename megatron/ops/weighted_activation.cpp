#include "megatron/ops/weighted_activation.h"

#include "megatron/kernels/weighted_activation.h"
#include "megatron/ops/activation.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

struct WeightedActivationNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor x = saved_x.get(b.ctx), weights = saved_weights.get(b.ctx);
    Tensor dx = b.wanted(0) ? b.ctx.empty_like("weighted_activation.dx", x) : Tensor();
    Tensor dweights = b.wanted(1) ? b.ctx.empty_like("weighted_activation.dweights", weights) : Tensor();
    launch(b.ctx, {.shape = &x.shape()}, [&](auto& stream) {
      kernels::weighted_activation_backward(stream, {.x = x.view(),
                                                     .weights = weights.view(),
                                                     .dy = grad_out[0].view(),
                                                     .dx = dx.view(),
                                                     .dweights = dweights.view(),
                                                     .activation = choice.kind,
                                                     .is_gated = choice.is_gated,
                                                     .options = choice.gate});
    });
    if (b.wanted(0)) grad_in[0] = std::move(dx);
    if (b.wanted(1)) grad_in[1] = std::move(dweights);
    saved_x.drop();
    saved_weights.drop();
  }
  ActivationChoice choice;
  SavedTensor saved_x, saved_weights;
};

}  // namespace

Tensor weighted_activation(Context& ctx, const Tensor& x, const Tensor& weights, const ActivationChoice& choice) {
  if (!weights.defined())
    return choice.is_gated ? gated_activation(ctx, x, nullptr, choice.kind, choice.gate)
                           : activation(ctx, x, nullptr, choice.kind);
  require_row_weights("weighted_activation", x, weights);
  require<ShapeError>(!choice.is_gated || x.size(1) % 2 == 0,
                      "[weighted_activation] gate and up are the halves of a row: {} elements are odd.", x.size(1));
  const Shape shape{x.size(0), choice.is_gated ? x.size(1) / 2 : x.size(1)};
  Tensor y = ctx.empty_bounded("weighted_activation.y", shape, x.dtype(), x.count());
  launch(ctx, {.shape = &x.shape()}, [&](auto& stream) {
    kernels::weighted_activation_forward(stream, {.x = x.view(),
                                                  .weights = weights.view(),
                                                  .y = y.view(),
                                                  .activation = choice.kind,
                                                  .is_gated = choice.is_gated,
                                                  .options = choice.gate});
  });
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
