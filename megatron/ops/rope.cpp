#include "megatron/ops/rope.h"

#include "megatron/core/copy.h"
#include "megatron/kernels/cuda/rope.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

Tensor rotate(const Context& ctx, const Tensor& x, const RopeTable& table, const SequenceLayout& layout, bool inverse) {
  Tensor y = ctx.empty(inverse ? "rope.dx" : "rope.y", x.shape(), x.dtype());
  launch(ctx, {.shape = &x.shape()}, [&](auto& stream) {
    kernels::rope(stream, {.x = x.view(),
                           .y = y.view(),
                           .cos = table.cos.view(),
                           .sin = table.sin.view(),
                           .layout = layout.view(),
                           .pairs = table.pairs,
                           .inverse = inverse});
  });
  return y;
}

struct RopeNode final : Node {
  RopeNode(const RopeTable& table, const SequenceLayout& layout) : table(table), layout(layout) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = rotate(b.ctx, grad_out[0], table, layout, true);
  }
  RopeTable table;  // handles: the tensors are shared
  SequenceLayout layout;
};

}  // namespace

RopeTable RopeTable::make(const Context& ctx, const kernels::RopeSettings& settings, kernels::RopePairs pairs,
                          int64_t num_positions, DType dtype) {
  const std::vector<double> frequencies = kernels::rope_frequencies(settings);
  const auto half = static_cast<int64_t>(frequencies.size());
  RopeTable table{ctx.empty("rope.cos", {num_positions, half}, statistics_dtype(dtype), MemoryUse::kWeights),
                  ctx.empty("rope.sin", {num_positions, half}, statistics_dtype(dtype), MemoryUse::kWeights), pairs};
  Tensor on_device = ctx.empty("rope.frequencies", {half}, DType::kFloat64, MemoryUse::kWorkspace);
  write_values(ctx.device, std::span<const double>(frequencies), on_device);
  launch(ctx, [&](auto& stream) {
    kernels::rope_table(stream, {.frequencies = std::as_const(on_device).view(),
                                 .magnitude = kernels::rope_magnitude(settings),
                                 .cos = table.cos.view(),
                                 .sin = table.sin.view()});
  });
  return table;
}

Tensor rope(Context& ctx, const Tensor& x, const RopeTable& table, const SequenceLayout& layout) {
  require<ShapeError>(
      x.shape().rank() == 4 && x.size(0) == layout.s() && x.size(1) == layout.b() && 2 * table.cos.size(1) <= x.size(3),
      "[rope] x of shape {} does not fit a layout of {} rows in {} columns and {} rotated elements.", x.shape(),
      layout.s(), layout.b(), 2 * table.cos.size(1));
  require<ShapeError>(layout.num_positions() <= table.cos.size(0),
                      "[rope] the layout has positions up to {}, the table {}. Make a longer table.",
                      layout.num_positions() - 1, table.cos.size(0));
  Tensor y = rotate(ctx, x, table, layout, false);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<RopeNode>(table, layout); });
  return y;
}

}  // namespace megatron
