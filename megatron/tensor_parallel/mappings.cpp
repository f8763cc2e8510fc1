#include "megatron/tensor_parallel/mappings.h"

#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/tensor_parallel/collectives.h"

namespace megatron {
namespace {

struct GatherLastDimensionNode final : Node {
  GatherLastDimensionNode(const ProcessGroup& group, const Shape& shape) : group(group), shape(shape) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const int last = shape.rank() - 1;
    const Tensor part = grad_out[0].detach().slice(last, group.rank() * shape[last], shape[last]);
    Tensor dx = b.ctx.empty("gather.dx", shape, part.dtype());
    launch(b.ctx, {.name = "copy"}, [&](auto& stream) { kernels::copy(stream, {.x = part.view(), .y = dx.view()}); });
    grad_in[0] = std::move(dx);
  }
  ProcessGroup group;
  Shape shape;  // of x
};

}  // namespace

Tensor gather_from_tensor_model_parallel_region(Context& ctx, const Tensor& x, const ProcessGroup& group) {
  if (group.size() == 1) return x;
  const int last = x.shape().rank() - 1;
  const int64_t n = x.size(last), num_rows = x.size(0);
  const Tensor parts = gather_rows_of_ranks(ctx, group, x, "gather");  // the ranks one after the other
  Shape shape = x.shape();
  shape[last] = n * group.size();
  Tensor y = ctx.empty("gather.y", shape, x.dtype());
  for (int rank = 0; rank < group.size(); ++rank) {
    const Tensor part = parts.slice(0, rank * num_rows, num_rows);
    Tensor place = y.slice(last, rank * n, n);
    launch(ctx, {.name = "copy"}, [&](auto& stream) { kernels::copy(stream, {.x = part.view(), .y = place.view()}); });
  }
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<GatherLastDimensionNode>(group, x.shape()); });
  return y;
}

}  // namespace megatron
