#include "megatron/ops/split_qkv.h"

#include <array>

#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

/// A part of every group: [s, b, g, elements of the part].
Tensor elements_of_part(const Tensor& mixed, const MixedHeads& heads, int part) {
  const int64_t d = heads.head_size(mixed);
  const auto [first, count] = heads.range(part);
  return mixed.detach()
      .reshape({mixed.size(0), mixed.size(1), heads.num_groups, heads.group_size() * d})
      .slice(3, first * d, count * d);
}

struct SplitQkvNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    if (are_packed(grad_out)) {
      grad_in[0] = Tensor(grad_out[0].storage(), dtype, shape);
      return;
    }
    Tensor dmixed = b.ctx.empty("split_qkv.dmixed", shape, dtype);
    for (int i = 0; i < heads.num_parts(); ++i) {
      const Tensor& grad = grad_out[static_cast<size_t>(i)];
      Tensor part = elements_of_part(dmixed, heads, i);
      launch(b.ctx, {.shape = &part.shape()}, [&](auto& stream) {
        if (grad.defined())
          kernels::copy(stream, {.x = as_part(grad).view(), .y = part.view()});
        else
          kernels::fill(stream, {.y = part.view(), .value = 0});
      });
    }
    grad_in[0] = std::move(dmixed);
  }
  /// Says whether the three are the views of one tensor of the shape of the projection.
  bool are_packed(std::span<const Tensor> grads) const {
    if (heads.has_gates) return false;
    for (const Tensor& grad : grads)
      if (!grad.defined() || grad.is_contiguous() || grad.storage() != grads[0].storage()) return false;
    return true;
  }
  /// Heads in the shape of elements_of_part(). Strided ones are views, which have it already.
  Tensor as_part(const Tensor& grad) const {
    if (!grad.is_contiguous()) return grad;
    const int64_t num_parts = shape[0] * shape[1] * heads.num_groups;
    return grad.reshape({shape[0], shape[1], heads.num_groups, num_parts > 0 ? grad.num_elements() / num_parts : 0});
  }
  Shape shape;
  DType dtype = DType::kFloat32;
  MixedHeads heads;
};

QueryKeyValue copies_of(const Context& ctx, const Tensor& mixed, const MixedHeads& heads) {
  QueryKeyValue out = empty_parts(ctx, mixed, heads);
  const std::array<Tensor*, 4> outputs = {&out.query, &out.key, &out.value, &out.gate};
  for (int i = 0; i < heads.num_parts(); ++i) {
    const Tensor part = elements_of_part(mixed, heads, i);
    Tensor y = outputs[static_cast<size_t>(i)]->reshape(part.shape());
    launch(ctx, {.shape = &part.shape()},
           [&](auto& stream) { kernels::copy(stream, {.x = part.view(), .y = y.view()}); });
  }
  return out;
}

}  // namespace

MixedHeads::Range MixedHeads::range(int part) const {
  const int64_t first_key = heads_per_group() * (has_gates ? 2 : 1);
  switch (part) {
    case kQuery:
      return {0, heads_per_group()};
    case kGate:
      return {heads_per_group(), heads_per_group()};
    case kKey:
      return {first_key, 1};
    default:
      return {first_key + 1, 1};
  }
}

int64_t MixedHeads::head_size(const Tensor& mixed) const {
  const bool is_grouped = num_heads % num_groups == 0;
  require<ShapeError>(is_grouped && mixed.size(-1) % (num_groups * group_size()) == 0,
                      "[split_qkv] {} columns are not {} groups of queries of {} heads, {}a key and a value.",
                      mixed.size(-1), num_groups, num_heads, has_gates ? "their gates, " : "");
  return mixed.size(-1) / (num_groups * group_size());
}

QueryKeyValue empty_parts(const Context& ctx, const Tensor& mixed, const MixedHeads& heads) {
  const int64_t d = heads.head_size(mixed);
  const auto part = [&](std::string_view name, int64_t num_heads) {
    return ctx.empty(name, {mixed.size(0), mixed.size(1), num_heads, d}, mixed.dtype());
  };
  QueryKeyValue parts{part("split_qkv.query", heads.num_heads), part("split_qkv.key", heads.num_groups),
                      part("split_qkv.value", heads.num_groups)};
  if (heads.has_gates) parts.gate = part("split_qkv.gate", heads.num_heads);
  return parts;
}

QueryKeyValue qkv_views(const Tensor& mixed, int64_t num_heads) {
  const MixedHeads heads{.num_groups = num_heads, .num_heads = num_heads};
  const auto view = [&](int part) { return elements_of_part(mixed, heads, part); };
  return {view(MixedHeads::kQuery), view(MixedHeads::kKey), view(MixedHeads::kValue)};
}

QueryKeyValue split_qkv(Context& ctx, const Tensor& mixed, const MixedHeads& heads, QkvParts parts) {
  require<ShapeError>(parts == QkvParts::kCopies || (heads.heads_per_group() == 1 && !heads.has_gates),
                      "[split_qkv] {} heads in each of {} groups{}: only one, without a gate, can be a view.",
                      heads.heads_per_group(), heads.num_groups, heads.has_gates ? ", with gates" : "");
  QueryKeyValue out = parts == QkvParts::kViews ? qkv_views(mixed, heads.num_heads) : copies_of(ctx, mixed, heads);
  const auto make = [&] {
    auto node = std::make_unique<SplitQkvNode>();
    node->shape = mixed.shape();
    node->dtype = mixed.dtype();
    node->heads = heads;
    return node;
  };
  if (heads.has_gates)
    record(ctx, {}, {mixed.slot}, {&out.query, &out.key, &out.value, &out.gate}, make);
  else
    record(ctx, {}, {mixed.slot}, {&out.query, &out.key, &out.value}, make);
  return out;
}

}  // namespace megatron
