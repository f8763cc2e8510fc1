#include "megatron/ops/rope.h"

#include <array>

#include "megatron/core/copy.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/rope.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

void rotate(const Context& ctx, const ConstView& x, const View& y, const RopeTable& table, const SequenceLayout& layout,
            bool inverse) {
  launch(ctx, {.name = "rope", .shape = &x.shape}, [&](auto& stream) {
    kernels::rope(stream, {.x = x,
                           .y = y,
                           .cos = table.cos.view(),
                           .sin = table.sin.view(),
                           .layout = layout.view(),
                           .pairs = table.pairs,
                           .inverse = inverse});
  });
}

Tensor rotated(const Context& ctx, const Tensor& x, const RopeTable& table, const SequenceLayout& layout,
               bool inverse) {
  Tensor y = ctx.empty(inverse ? "rope.dx" : "rope.y", x.shape(), x.dtype());
  rotate(ctx, x.view(), y.view(), table, layout, inverse);
  return y;
}

struct RopeNode final : Node {
  RopeNode(const RopeTable& table, const SequenceLayout& layout) : table(table), layout(layout) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = rotated(b.ctx, grad_out[0], table, layout, true);
  }
  RopeTable table;  // handles: the tensors are shared
  SequenceLayout layout;
};

/// A part of every group: [s, b, g, heads of the part, d].
Tensor part_of(const Tensor& mixed, const MixedHeads& heads, int part) {
  const auto [first, count] = heads.range(part);
  return mixed.detach()
      .reshape({mixed.size(0), mixed.size(1), heads.num_groups, heads.group_size(), heads.head_size(mixed)})
      .slice(3, first, count);
}

bool is_rotated(int part) { return part == MixedHeads::kQuery || part == MixedHeads::kKey; }

struct SplitRotatedQkvNode final : Node {
  SplitRotatedQkvNode(const MixedHeads& heads, const RopeTable& table, const SequenceLayout& layout)
      : heads(heads), table(table), layout(layout) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    Tensor dmixed = b.ctx.empty("split_rotated_qkv.dmixed", shape, dtype);
    for (int i = 0; i < heads.num_parts(); ++i) {
      Tensor part = part_of(dmixed, heads, i);
      const Tensor& grad = grad_out[static_cast<size_t>(i)];
      if (grad.defined() && is_rotated(i))
        rotate(b.ctx, grad.view(), part.view(), table, layout, true);
      else
        launch(b.ctx, {.name = "split_qkv", .shape = &part.shape()}, [&](auto& stream) {
          if (grad.defined())
            kernels::copy(stream, {.x = grad.reshape(part.shape()).view(), .y = part.view()});
          else
            kernels::fill(stream, {.y = part.view(), .value = 0});
        });
    }
    grad_in[0] = std::move(dmixed);
  }
  MixedHeads heads;
  RopeTable table;
  SequenceLayout layout;
  Shape shape;
  DType dtype = DType::kFloat32;
};

void require_rotatable(int64_t s, int64_t b, int64_t d, const RopeTable& table, const SequenceLayout& layout) {
  require<ShapeError>(s == layout.s() && b == layout.b() && 2 * table.cos.size(1) <= d,
                      "[rope] heads of {} elements in {} rows and {} columns do not fit a layout of {} rows in {} "
                      "columns and {} rotated elements.",
                      d, s, b, layout.s(), layout.b(), 2 * table.cos.size(1));
  require<ShapeError>(layout.num_positions() <= table.cos.size(0),
                      "[rope] the layout has positions up to {}, the table up to {}. Make a longer table.",
                      layout.num_positions() - 1, table.cos.size(0));
}

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
  require<ShapeError>(x.shape().rank() == 4, "[rope] x of shape {} is not [s, b, n, d].", x.shape());
  require_rotatable(x.size(0), x.size(1), x.size(3), table, layout);
  Tensor y = rotated(ctx, x, table, layout, false);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<RopeNode>(table, layout); });
  return y;
}

QueryKeyValue split_rotated_qkv(Context& ctx, const Tensor& mixed, const MixedHeads& heads, const RopeTable& table,
                                const SequenceLayout& layout) {
  require_rotatable(mixed.size(0), mixed.size(1), heads.head_size(mixed), table, layout);
  QueryKeyValue out = empty_parts(ctx, mixed, heads);
  const std::array<Tensor*, 4> outputs = {&out.query, &out.key, &out.value, &out.gate};
  for (int i = 0; i < heads.num_parts(); ++i) {
    const Tensor part = part_of(mixed, heads, i);
    Tensor& y = *outputs[static_cast<size_t>(i)];
    if (is_rotated(i)) {
      rotate(ctx, part.view(), y.view(), table, layout, false);
      continue;
    }
    Tensor groups = y.reshape(part.shape());
    launch(ctx, {.name = "split_qkv", .shape = &part.shape()},
           [&](auto& stream) { kernels::copy(stream, {.x = part.view(), .y = groups.view()}); });
  }
  const auto make = [&] {
    auto node = std::make_unique<SplitRotatedQkvNode>(heads, table, layout);
    node->shape = mixed.shape();
    node->dtype = mixed.dtype();
    return node;
  };
  if (heads.has_gates)
    record(ctx, {}, {mixed.slot}, {&out.query, &out.key, &out.value, &out.gate}, make);
  else
    record(ctx, {}, {mixed.slot}, {&out.query, &out.key, &out.value}, make);
  return out;
}

}  // namespace megatron
