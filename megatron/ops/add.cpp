#include "megatron/ops/add.h"

#include "megatron/kernels/elementwise.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

struct AddNode final : Node {
  void backward_input(BackwardContext&, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = grad_in[1] = grad_out[0];
  }
};

Tensor converted(const Context& ctx, std::string_view name, const Tensor& x, DType dtype) {
  Tensor y = ctx.empty_bounded(name, x.shape(), dtype, x.count());
  launch(ctx, {.name = "copy", .shape = &x.shape()},
         [&](auto& stream) { kernels::copy(stream, {.x = x.view(), .y = y.view()}); });
  return y;
}

Tensor multiple(const Context& ctx, std::string_view name, const Tensor& x, double factor) {
  Tensor y = ctx.empty_bounded(name, x.shape(), x.dtype(), x.count());
  launch(ctx, {.name = "scale", .shape = &x.shape()},
         [&](auto& stream) { kernels::scale(stream, {.x = x.view(), .y = y.view(), .factor = factor}); });
  return y;
}

struct ScaleNode final : Node {
  explicit ScaleNode(double factor) : factor(factor) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = multiple(b.ctx, "scale.dx", grad_out[0], factor);
  }
  double factor;
};

struct CastNode final : Node {
  explicit CastNode(DType dtype) : dtype(dtype) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = converted(b.ctx, "cast.dx", grad_out[0], dtype);
  }
  DType dtype;  // of x
};

}  // namespace

Tensor add(Context& ctx, const Tensor& a, const Tensor& b) {
  require<ShapeError>(a.shape() == b.shape() && a.dtype() == b.dtype(), "[add] operands differ: {} {} and {} {}.",
                      a.dtype(), a.shape(), b.dtype(), b.shape());
  require_same_extent("add", a, b);
  Tensor y = ctx.empty_like("add.y", a);
  launch(ctx, {.shape = &y.shape()},
         [&](auto& stream) { kernels::add(stream, {.a = a.view(), .b = b.view(), .y = y.view()}); });
  record(ctx, {}, {a.slot, b.slot}, {&y}, [] { return std::make_unique<AddNode>(); });
  return y;
}

Tensor scale(Context& ctx, const Tensor& x, double factor) {
  if (factor == 1) return x;
  Tensor y = multiple(ctx, "scale.y", x, factor);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<ScaleNode>(factor); });
  return y;
}

Tensor cast(Context& ctx, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = converted(ctx, "cast.y", x, dtype);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<CastNode>(x.dtype()); });
  return y;
}

}  // namespace megatron
