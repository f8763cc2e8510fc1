#include "megatron/ops/split_qkv.h"

#include <array>

#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

/// Part `index` (query, key, value) of every group: [s, b, g, elements of the part].
Tensor part_of(const Tensor& mixed, int64_t num_groups, int64_t heads_per_group, int index) {
  const int64_t d = mixed.size(2) / (num_groups * (heads_per_group + 2));
  const Tensor groups = mixed.detach().reshape({mixed.size(0), mixed.size(1), num_groups, (heads_per_group + 2) * d});
  return index == 0 ? groups.slice(3, 0, heads_per_group * d) : groups.slice(3, (heads_per_group + index - 1) * d, d);
}

struct SplitQkvNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    if (are_packed(grad_out)) {
      grad_in[0] = Tensor(grad_out[0].storage(), dtype, shape);
      return;
    }
    Tensor dmixed = b.ctx.empty("split_qkv.dmixed", shape, dtype);
    for (int i = 0; i < 3; ++i) {
      const Tensor& grad = grad_out[static_cast<size_t>(i)];
      Tensor part = part_of(dmixed, num_groups, heads_per_group, i);
      launch(b.ctx, {.shape = &part.shape()}, [&](auto& stream) {
        if (grad.defined())
          kernels::copy(stream, {.x = as_part(grad).view(), .y = part.view()});
        else
          kernels::fill(stream, {.y = part.view(), .value = 0});
      });
    }
    grad_in[0] = std::move(dmixed);
  }
  /// Whether the three are the views of one tensor of the shape of the projection.
  bool are_packed(std::span<const Tensor> grads) const {
    for (const Tensor& grad : grads)
      if (!grad.defined() || grad.is_contiguous() || grad.storage() != grads[0].storage()) return false;
    return true;
  }
  /// Heads in the shape of part_of(). Strided ones are views, which have it already.
  Tensor as_part(const Tensor& grad) const {
    if (!grad.is_contiguous()) return grad;
    const int64_t num_parts = shape[0] * shape[1] * num_groups;
    return grad.reshape({shape[0], shape[1], num_groups, num_parts > 0 ? grad.num_elements() / num_parts : 0});
  }
  Shape shape;
  DType dtype = DType::kFloat32;
  int64_t num_groups = 0, heads_per_group = 0;
};

QueryKeyValue copies_of(const Context& ctx, const Tensor& mixed, int64_t num_groups, int64_t heads_per_group) {
  const int64_t s = mixed.size(0), b = mixed.size(1), d = mixed.size(2) / (num_groups * (heads_per_group + 2));
  QueryKeyValue out{ctx.empty("split_qkv.query", {s, b, num_groups * heads_per_group, d}, mixed.dtype()),
                    ctx.empty("split_qkv.key", {s, b, num_groups, d}, mixed.dtype()),
                    ctx.empty("split_qkv.value", {s, b, num_groups, d}, mixed.dtype())};
  const std::array<Tensor*, 3> outputs = {&out.query, &out.key, &out.value};
  for (int i = 0; i < 3; ++i) {
    const Tensor part = part_of(mixed, num_groups, heads_per_group, i);
    Tensor y = outputs[static_cast<size_t>(i)]->reshape(part.shape());
    launch(ctx, {.shape = &part.shape()},
           [&](auto& stream) { kernels::copy(stream, {.x = part.view(), .y = y.view()}); });
  }
  return out;
}

}  // namespace

QueryKeyValue qkv_views(const Tensor& mixed, int64_t num_heads) {
  return {part_of(mixed, num_heads, 1, 0), part_of(mixed, num_heads, 1, 1), part_of(mixed, num_heads, 1, 2)};
}

void require_groups(const Tensor& mixed, int64_t num_groups, int64_t num_heads) {
  require<ShapeError>(num_heads % num_groups == 0 && mixed.size(-1) % (num_heads + 2 * num_groups) == 0,
                      "[split_qkv] {} columns are not {} groups of queries of {} heads, a key and a value.",
                      mixed.size(-1), num_groups, num_heads);
}

QueryKeyValue split_qkv(Context& ctx, const Tensor& mixed, int64_t num_groups, int64_t num_heads, QkvParts parts) {
  require_groups(mixed, num_groups, num_heads);
  const int64_t heads_per_group = num_heads / num_groups;
  require<ShapeError>(parts == QkvParts::kCopies || heads_per_group == 1,
                      "[split_qkv] {} heads in each of {} groups: only one can be a view.", heads_per_group,
                      num_groups);
  QueryKeyValue out =
      parts == QkvParts::kViews ? qkv_views(mixed, num_heads) : copies_of(ctx, mixed, num_groups, heads_per_group);
  record(ctx, {}, {mixed.slot}, {&out.query, &out.key, &out.value}, [&] {
    auto node = std::make_unique<SplitQkvNode>();
    node->shape = mixed.shape();
    node->dtype = mixed.dtype();
    node->num_groups = num_groups;
    node->heads_per_group = heads_per_group;
    return node;
  });
  return out;
}

}  // namespace megatron
