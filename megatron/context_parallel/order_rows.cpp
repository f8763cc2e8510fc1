#include "megatron/context_parallel/order_rows.h"

#include "megatron/kernels/gather_rows.h"

namespace megatron {
namespace {

/// y[i] = x[index[i]] over the rows [s * b].
Tensor gathered(const Context& ctx, const Tensor& x, const Tensor& index) {
  const Shape rows{index.size(0), x.num_elements() / index.size(0)};
  Tensor y = ctx.empty("order_rows.y", x.shape(), x.dtype());
  launch(ctx, {.name = "order_rows"}, [&](auto& stream) {
    kernels::gather_rows(stream,
                         {.x = x.detach().reshape(rows).view(), .index = index.view(), .y = y.reshape(rows).view()});
  });
  return y;
}

struct OrderRowsNode final : Node {
  explicit OrderRowsNode(const Tensor& inverse) : inverse(inverse) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = gathered(b.ctx, grad_out[0], inverse);
  }
  Tensor inverse;
};

Tensor ordered(Context& ctx, const Tensor& x, const Tensor& index, const Tensor& inverse) {
  require<ShapeError>(x.is_contiguous() && x.size(0) * x.size(1) == index.size(0),
                      "[order_rows] a tensor of shape {} is not {} contiguous rows.", x.shape(), index.size(0));
  Tensor y = gathered(ctx, x, index);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<OrderRowsNode>(inverse); });
  return y;
}

}  // namespace

Tensor order_by_positions(Context& ctx, const Tensor& x, const RowOrder& order) {
  return ordered(ctx, x, order.to_positions, order.to_ranks);
}

Tensor order_by_ranks(Context& ctx, const Tensor& x, const RowOrder& order) {
  return ordered(ctx, x, order.to_ranks, order.to_positions);
}

}  // namespace megatron
