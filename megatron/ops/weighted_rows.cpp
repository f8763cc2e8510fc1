#include "megatron/ops/weighted_rows.h"

#include "megatron/kernels/row_weights.h"
#include "megatron/ops/rows.h"

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

}  // namespace

Tensor scale_rows(Context& ctx, const Tensor& x, const Tensor& weights) {
  require_row_weights("scale_rows", x, weights);
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

}  // namespace megatron
