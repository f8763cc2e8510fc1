#include "megatron/ops/latent_heads.h"

#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/rope.h"
#include "megatron/kernels/sum_heads.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

void copy_part(const Context& ctx, const ConstView& x, const View& y) {
  launch(ctx, {.name = "copy", .shape = &x.shape}, [&](auto& stream) { kernels::copy(stream, {.x = x, .y = y}); });
}

void rotate_part(const Context& ctx, const ConstView& x, const View& y, const RopeTable& table,
                 const SequenceLayout& layout, bool inverse) {
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

/// The elements [begin, begin + length) of the last dimension.
Tensor part_of_head(const Tensor& x, int64_t begin, int64_t length) {
  return x.detach().slice(x.shape().rank() - 1, begin, length);
}

/// [s, b, d] seen as [s, b, n, d], the same for each head.
ConstView repeated(const Tensor& x, int64_t num_heads) {
  ConstView view = x.view();
  view.shape = {x.size(0), x.size(1), num_heads, x.size(2)};
  view.strides = {x.strides()[0], x.strides()[1], 0, x.strides()[2]};
  return view;
}

Tensor as_heads(const Tensor& x, int64_t head_size) {
  return x.detach().reshape({x.size(0), x.size(1), x.size(2) / head_size, head_size});
}

/// Copies the parts of queries without position and turns the others.
Tensor turned(const Context& ctx, const Tensor& x, const LatentHeadSizes& sizes, const RopeTable& table,
              const SequenceLayout& layout, bool inverse) {
  Tensor y = ctx.empty(inverse ? "latent_query.dx" : "latent_query.y", x.shape(), x.dtype());
  Tensor first = part_of_head(y, 0, sizes.without_position),
         second = part_of_head(y, sizes.without_position, sizes.rotated);
  copy_part(ctx, part_of_head(x, 0, sizes.without_position).view(), first.view());
  rotate_part(ctx, part_of_head(x, sizes.without_position, sizes.rotated).view(), second.view(), table, layout,
              inverse);
  return y;
}

struct LatentQueryNode final : Node {
  LatentQueryNode(const LatentHeadSizes& sizes, const RopeTable& table, const SequenceLayout& layout)
      : sizes(sizes), table(table), layout(layout) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor dx = turned(b.ctx, grad_out[0], sizes, table, layout, true);
    grad_in[0] = dx.reshape({dx.size(0), dx.size(1), dx.size(2) * dx.size(3)});
  }
  LatentHeadSizes sizes;
  RopeTable table;  // handles: the tensors are shared
  SequenceLayout layout;
};

struct LatentKeyValueNode final : Node {
  LatentKeyValueNode(const LatentHeadSizes& sizes, const RopeTable& table, const SequenceLayout& layout)
      : sizes(sizes), table(table), layout(layout) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor &dkey = grad_out[0], &dvalue = grad_out[1];
    require(dkey.defined() && dvalue.defined(), "[latent_key_value] keys and values have gradients together.");
    const int64_t s = dkey.size(0), b_size = dkey.size(1), n = dkey.size(2), first = sizes.without_position;
    Tensor dx = b.ctx.empty("latent_key_value.dx", {s, b_size, n, first + sizes.value}, dkey.dtype());
    Tensor of_keys = part_of_head(dx, 0, first), of_values = part_of_head(dx, first, sizes.value);
    copy_part(b.ctx, part_of_head(dkey, 0, first).view(), of_keys.view());
    copy_part(b.ctx, dvalue.view(), of_values.view());
    Tensor sum = b.ctx.empty("latent_key_value.dshared", {s, b_size, sizes.rotated}, dkey.dtype());
    const Tensor turned = part_of_head(dkey, first, sizes.rotated);
    launch(b.ctx, {.name = "sum_heads", .shape = &turned.shape()},
           [&](auto& stream) { kernels::sum_heads(stream, {.x = turned.view(), .y = sum.view()}); });
    Tensor one_head = sum.reshape({s, b_size, 1, sizes.rotated});
    rotate_part(b.ctx, one_head.view(), one_head.view(), table, layout, true);
    grad_in[0] = dx.reshape({s, b_size, n * (first + sizes.value)});
    grad_in[1] = std::move(sum);
  }
  LatentHeadSizes sizes;
  RopeTable table;
  SequenceLayout layout;
};

void require_latent_rows(const Tensor& x, int64_t head_size, const LatentHeadSizes& sizes, const RopeTable& table,
                         const SequenceLayout& layout) {
  require<ShapeError>(x.shape().rank() == 3 && x.size(0) == layout.s() && x.size(1) == layout.b() &&
                          x.size(2) % head_size == 0 && 2 * table.cos.size(1) <= sizes.rotated,
                      "[latent attention] {} is not [{}, {}, heads of {} elements], or {} elements of a head cannot "
                      "rotate {}.",
                      x.shape(), layout.s(), layout.b(), head_size, sizes.rotated, 2 * table.cos.size(1));
  require<ShapeError>(layout.num_positions() <= table.cos.size(0),
                      "[latent attention] the layout has positions up to {}, the table up to {}. Make a longer table.",
                      layout.num_positions() - 1, table.cos.size(0));
}

}  // namespace

Tensor latent_query(Context& ctx, const Tensor& x, const LatentHeadSizes& sizes, const RopeTable& table,
                    const SequenceLayout& layout) {
  require_latent_rows(x, sizes.query(), sizes, table, layout);
  Tensor y = turned(ctx, as_heads(x, sizes.query()), sizes, table, layout, false);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<LatentQueryNode>(sizes, table, layout); });
  return y;
}

KeyValue latent_key_value(Context& ctx, const Tensor& x, const Tensor& shared, const LatentHeadSizes& sizes,
                          const RopeTable& table, const SequenceLayout& layout) {
  const int64_t first = sizes.without_position;
  require_latent_rows(x, first + sizes.value, sizes, table, layout);
  require<ShapeError>(shared.shape() == Shape{layout.s(), layout.b(), sizes.rotated},
                      "[latent_key_value] the shared part of the keys is {}, not [{}, {}, {}].", shared.shape(),
                      layout.s(), layout.b(), sizes.rotated);
  const Tensor heads = as_heads(x, first + sizes.value);
  const int64_t n = heads.size(2);
  KeyValue out{ctx.empty("latent_key_value.key", {x.size(0), x.size(1), n, sizes.query()}, x.dtype()),
               ctx.empty("latent_key_value.value", {x.size(0), x.size(1), n, sizes.value}, x.dtype())};
  Tensor own = part_of_head(out.key, 0, first), turned_part = part_of_head(out.key, first, sizes.rotated);
  copy_part(ctx, part_of_head(heads, 0, first).view(), own.view());
  copy_part(ctx, part_of_head(heads, first, sizes.value).view(), out.value.view());
  rotate_part(ctx, repeated(shared, n), turned_part.view(), table, layout, false);
  record(ctx, {}, {x.slot, shared.slot}, {&out.key, &out.value},
         [&] { return std::make_unique<LatentKeyValueNode>(sizes, table, layout); });
  return out;
}

}  // namespace megatron
