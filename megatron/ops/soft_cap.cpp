#include "megatron/ops/soft_cap.h"

#include "megatron/kernels/soft_cap.h"

namespace megatron {
namespace {

struct SoftCapNode final : Node {
  explicit SoftCapNode(double cap) : cap(cap) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor y = saved_y.get(b.ctx);
    Tensor dx = b.ctx.empty_like("soft_cap.dx", y);
    launch(b.ctx, {.shape = &y.shape()}, [&](auto& stream) {
      kernels::soft_cap_backward(stream, {.y = y.view(), .dy = grad_out[0].view(), .dx = dx.view(), .cap = cap});
    });
    grad_in[0] = std::move(dx);
    saved_y.drop();
  }
  double cap;
  SavedTensor saved_y;
};

}  // namespace

Tensor soft_cap(Context& ctx, const Tensor& x, double cap) {
  require<ConfigError>(cap > 0, "[soft_cap] the cap is {}. Values are bent towards it: give a number above 0.", cap);
  Tensor y = ctx.empty_like("soft_cap.y", x);
  launch(ctx, {.shape = &x.shape()},
         [&](auto& stream) { kernels::soft_cap_forward(stream, {.x = x.view(), .y = y.view(), .cap = cap}); });
  record(ctx, {}, {x.slot}, {&y}, [&] {
    auto node = std::make_unique<SoftCapNode>(cap);
    node->saved_y = SavedTensor(ctx, y);
    return node;
  });
  return y;
}

}  // namespace megatron
