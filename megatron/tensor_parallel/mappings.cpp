#include "megatron/tensor_parallel/mappings.h"

#include "megatron/kernels/elementwise.h"
#include "megatron/ops/rows.h"
#include "megatron/tensor_parallel/collectives.h"

namespace megatron {
namespace {

/// This rank's part of the last dimension, in memory of its own.
Tensor own_columns(const Context& ctx, std::string_view name, const Tensor& x, const ProcessGroup& group) {
  const int last = x.shape().rank() - 1;
  Shape shape = x.shape();
  shape[last] /= group.size();
  const Tensor part = x.detach().slice(last, group.rank() * shape[last], shape[last]);
  Tensor y = ctx.empty(name, shape, x.dtype());
  launch(ctx, {.name = "copy"}, [&](auto& stream) { kernels::copy(stream, {.x = part.view(), .y = y.view()}); });
  return y;
}

/// The last dimensions of all ranks side by side.
Tensor columns_of_ranks(const Context& ctx, std::string_view name, const Tensor& x, const ProcessGroup& group) {
  const int last = x.shape().rank() - 1;
  const int64_t n = x.size(last), num_rows = x.size(0);
  const Tensor parts = gather_rows_of_ranks(ctx, group, x, "gather");  // the ranks one after the other
  Shape shape = x.shape();
  shape[last] = n * group.size();
  Tensor y = ctx.empty(name, shape, x.dtype());
  for (int rank = 0; rank < group.size(); ++rank) {
    const Tensor part = parts.slice(0, rank * num_rows, num_rows);
    Tensor place = y.slice(last, rank * n, n);
    launch(ctx, {.name = "copy"}, [&](auto& stream) { kernels::copy(stream, {.x = part.view(), .y = place.view()}); });
  }
  return y;
}

struct GatherLastDimensionNode final : Node {
  GatherLastDimensionNode(const ProcessGroup& group, const Shape& shape) : group(group), shape(shape) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    Shape whole = shape;
    whole[whole.rank() - 1] *= group.size();
    grad_in[0] = own_columns(b.ctx, "gather.dx", gradient_of(whole, grad_out[0]), group);
  }
  ProcessGroup group;
  Shape shape;  // of x
};

struct ScatterLastDimensionNode final : Node {
  ScatterLastDimensionNode(const ProcessGroup& group, const Shape& shape) : group(group), shape(shape) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = columns_of_ranks(b.ctx, "scatter.dx", gradient_of(shape, grad_out[0]), group);
  }
  ProcessGroup group;
  Shape shape;  // of y
};

struct CopyToTensorRegionNode final : Node {
  explicit CopyToTensorRegionNode(const ProcessGroup& group) : group(group) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    Tensor dx = b.ctx.empty_like("copy_to_tensor_region.dx", grad_out[0]);
    launch(b.ctx, {.name = "copy"},
           [&](auto& stream) { kernels::copy(stream, {.x = grad_out[0].view(), .y = dx.view()}); });
    sum = start_all_reduce(group, dx, ReduceOp::kSum, "copy_to_tensor_region.dx");
    grad_in[0] = std::move(dx);
  }
  void finish_input(BackwardContext&) override { sum.wait(); }
  ProcessGroup group;
  Work sum;
};

struct GatherSequenceNode final : Node {
  explicit GatherSequenceNode(const ProcessGroup& group) : group(group) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    Pending part = start_reduce_scatter(b.ctx, group, grad_out[0], "gather_sequence.dx");
    sum = std::move(part.work);
    grad_in[0] = std::move(part.tensor);
  }
  void finish_input(BackwardContext&) override { sum.wait(); }
  ProcessGroup group;
  Work sum;
};

struct ScatterToSequenceNode final : Node {
  explicit ScatterToSequenceNode(const ProcessGroup& group) : group(group) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    Pending whole = start_gather(b.ctx, group, grad_out[0], "scatter_to_sequence.dx");
    gather = std::move(whole.work);
    grad_in[0] = std::move(whole.tensor);
  }
  void finish_input(BackwardContext&) override { gather.wait(); }
  ProcessGroup group;
  Work gather;
};

}  // namespace

Tensor scatter_to_sequence_parallel_region(Context& ctx, const Tensor& x, const ProcessGroup& group) {
  if (group.size() == 1) return x;
  const int64_t num_rows = rows_of_rank(group, x.size(0));
  Tensor y = x.detach().slice(0, group.rank() * num_rows, num_rows);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<ScatterToSequenceNode>(group); });
  return y;
}

Tensor copy_to_tensor_model_parallel_region(Context& ctx, const Tensor& x, const ProcessGroup& group) {
  if (group.size() == 1) return x;
  Tensor y = x.detach();
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<CopyToTensorRegionNode>(group); });
  return y;
}

Tensor gather_from_sequence_parallel_region(Context& ctx, const Tensor& x, const ProcessGroup& group) {
  if (group.size() == 1) return x;
  Tensor y = gather_rows_of_ranks(ctx, group, x, "gather_sequence");
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<GatherSequenceNode>(group); });
  return y;
}

Tensor gather_from_tensor_model_parallel_region(Context& ctx, const Tensor& x, const ProcessGroup& group) {
  if (group.size() == 1) return x;
  Tensor y = columns_of_ranks(ctx, "gather.y", x, group);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<GatherLastDimensionNode>(group, x.shape()); });
  return y;
}

Tensor scatter_to_tensor_model_parallel_region(Context& ctx, const Tensor& x, const ProcessGroup& group) {
  if (group.size() == 1) return x;
  require<ShapeError>(x.size(-1) % group.size() == 0,
                      "[scatter_to_tensor_model_parallel_region] {} columns are not divisible by {} ranks: each takes "
                      "an equal part.",
                      x.size(-1), group.size());
  Tensor y = own_columns(ctx, "scatter.y", x, group);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<ScatterLastDimensionNode>(group, y.shape()); });
  return y;
}

}  // namespace megatron
