#include "megatron/ops/input_jitter.h"

#include "megatron/kernels/input_jitter.h"

namespace megatron {
namespace {

struct InputJitterNode final : Node {
  explicit InputJitterNode(const kernels::InputJitterArgs& args) : args(args) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    Tensor dx = b.ctx.empty_like("input_jitter.dx", grad_out[0]);
    args.x = grad_out[0].view();
    args.y = dx.view();
    launch(b.ctx, {.shape = &dx.shape()}, [&](auto& stream) { kernels::input_jitter(stream, args); });
    grad_in[0] = std::move(dx);
  }
  kernels::InputJitterArgs args;
};

}  // namespace

Tensor input_jitter(Context& ctx, const Tensor& x, const InputJitterOptions& options) {
  require(!options.rows.list, "[input_jitter] a list of rows would have to live until backward.");
  Tensor y = ctx.empty_like("input_jitter.y", x);
  const kernels::InputJitterArgs args{.x = x.view(),
                                      .y = y.view(),
                                      .eps = options.eps,
                                      .key = ctx.key.at(options.path).at("input_jitter"),
                                      .state = &ctx.step,
                                      .rows = options.rows};
  launch(ctx, {.shape = &x.shape()}, [&](auto& stream) { kernels::input_jitter(stream, args); });
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<InputJitterNode>(args); });
  return y;
}

}  // namespace megatron
