#include "megatron/ops/split_qkv.h"

#include <array>

#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

/// Part `index` (query, key, value) of every group, as [s, b, g, heads of the part, d].
Tensor part_of(const Tensor& mixed, int64_t num_groups, int64_t heads_per_group, int index) {
  const int64_t d = mixed.size(2) / (num_groups * (heads_per_group + 2));
  const Tensor groups = mixed.detach().reshape({mixed.size(0), mixed.size(1), num_groups, heads_per_group + 2, d});
  return index == 0 ? groups.slice(3, 0, heads_per_group) : groups.slice(3, heads_per_group + index - 1, 1);
}

struct SplitQkvNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    Tensor dmixed = b.ctx.empty("split_qkv.dmixed", shape, dtype);
    for (int i = 0; i < 3; ++i) {
      Tensor part = part_of(dmixed, num_groups, heads_per_group, i);
      const Tensor& grad = grad_out[static_cast<size_t>(i)];
      launch(b.ctx, [&](auto& stream) {
        if (grad.defined())
          kernels::copy(stream, {.x = grad.reshape(part.shape()).view(), .y = part.view()});
        else
          kernels::fill(stream, {.y = part.view(), .value = 0});
      });
    }
    grad_in[0] = std::move(dmixed);
  }
  Shape shape;
  DType dtype = DType::kFloat32;
  int64_t num_groups = 0, heads_per_group = 0;
};

}  // namespace

QueryKeyValue split_qkv(Context& ctx, const Tensor& mixed, int64_t num_groups, int64_t num_heads) {
  require<ShapeError>(num_heads % num_groups == 0 && mixed.size(-1) % (num_heads + 2 * num_groups) == 0,
                      "[split_qkv] {} columns are not {} groups of queries of {} heads, a key and a value.",
                      mixed.size(-1), num_groups, num_heads);
  const int64_t heads_per_group = num_heads / num_groups, d = mixed.size(-1) / (num_heads + 2 * num_groups);
  const int64_t s = mixed.size(0), b = mixed.size(1);
  QueryKeyValue out{ctx.empty("split_qkv.query", {s, b, num_heads, d}, mixed.dtype()),
                    ctx.empty("split_qkv.key", {s, b, num_groups, d}, mixed.dtype()),
                    ctx.empty("split_qkv.value", {s, b, num_groups, d}, mixed.dtype())};
  const std::array<Tensor*, 3> outputs = {&out.query, &out.key, &out.value};
  for (int i = 0; i < 3; ++i) {
    const Tensor part = part_of(mixed, num_groups, heads_per_group, i);
    Tensor y = outputs[static_cast<size_t>(i)]->reshape(part.shape());
    launch(ctx, {.shape = &part.shape()},
           [&](auto& stream) { kernels::copy(stream, {.x = part.view(), .y = y.view()}); });
  }
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
