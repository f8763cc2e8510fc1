#include "megatron/ops/move_rows.h"

#include "megatron/kernels/gather_rows.h"

namespace megatron {
namespace {

Tensor launch_gather(const Context& ctx, const Tensor& x, const IndexList& index) {
  Tensor y = ctx.empty_bounded("gather_rows.y", {index.rows.size(0), x.size(1)}, x.dtype(), index.count);
  launch(ctx, [&](auto& stream) {
    kernels::gather_rows(stream,
                         {.x = x.view(), .index = index.rows.view(), .weights = {}, .y = y.view(), .state = &ctx.step});
  });
  return y;
}

Tensor launch_scatter(const Context& ctx, const Tensor& x, const IndexList& index, int64_t num_rows) {
  Tensor y = ctx.empty("scatter_rows.y", {num_rows, x.size(1)}, x.dtype());
  Tensor workspace = ctx.workspace("scatter_rows.workspace", kernels::scatter_add_rows_workspace_bytes(x.size(0)));
  launch(ctx, [&](auto& stream) {
    kernels::scatter_add_rows(
        stream,
        {.x = x.view(), .index = index.rows.view(), .y = y.view(), .workspace = workspace.view(), .state = &ctx.step});
  });
  return y;
}

/// Gather and scatter are each other's gradient.
struct MoveRowsNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] =
        was_gather ? launch_scatter(b.ctx, grad_out[0], index, num_rows) : launch_gather(b.ctx, grad_out[0], index);
  }
  bool was_gather = false;
  IndexList index;
  int64_t num_rows = 0;  // of the larger operand
};

void record_move(Context& ctx, bool is_gather, const Tensor& x, const IndexList& index, int64_t num_rows, Tensor& y) {
  record(ctx, {}, {x.slot}, {&y}, [&] {
    auto node = std::make_unique<MoveRowsNode>();
    node->was_gather = is_gather;
    node->index = index;
    node->num_rows = num_rows;
    return node;
  });
}

}  // namespace

Tensor gather_rows(Context& ctx, const Tensor& x, const IndexList& index) {
  Tensor y = launch_gather(ctx, x, index);
  record_move(ctx, true, x, index, x.size(0), y);
  return y;
}

Tensor scatter_rows(Context& ctx, const Tensor& x, const IndexList& index, int64_t num_rows) {
  require<ShapeError>(x.size(0) == index.rows.size(0), "[scatter_rows] {} rows for {} indices.", x.size(0),
                      index.rows.size(0));
  Tensor y = launch_scatter(ctx, x, index, num_rows);
  record_move(ctx, false, x, index, num_rows, y);
  return y;
}

}  // namespace megatron
