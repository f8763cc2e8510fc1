#include <array>
#include <span>

#include "megatron/bench/step_kernels.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/cuda/rope.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/rope.h"
#include "megatron/transformer/rotary_embedding.h"

namespace megatron {
namespace {

/// Queries, keys and values inside of the fused projection: [s, b, g, heads of the part, d].
std::array<Tensor, 3> mixed_parts(const Context& ctx, const StepShapes& z) {
  const int64_t heads = z.n / z.g;
  const Tensor mixed = random_tensor(ctx, {z.s, z.b, z.g, heads + 2, z.d}, z.model.params_dtype);
  return {mixed.slice(3, 0, heads), mixed.slice(3, heads, 1), mixed.slice(3, heads + 1, 1)};
}

/// The last `num_parts` of them to memory of their own, or gradients back.
KernelCall split(const Context& ctx, const StepShapes& z, size_t num_parts, bool is_backward) {
  const std::array<Tensor, 3> inside = mixed_parts(ctx, z);
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const Tensor& part : std::span(inside).last(num_parts)) {
    const Tensor own = random_tensor(ctx, part.shape(), part.dtype());
    copies.emplace_back(is_backward ? own : part, is_backward ? part : own);
  }
  return [=, &ctx]() mutable {
    for (auto& [from, to] : copies)
      launch(ctx, {.name = "split_qkv", .shape = &from.shape()}, [&from = from, &to = to](auto& stream) {
        kernels::copy(stream, {.x = std::as_const(from).view(), .y = to.view()});
      });
  };
}

/// Queries and keys, on their way out of the projection or back into it, or where norms stand between, in memory of
/// their own.
KernelCall rotate(const Context& ctx, const StepShapes& z, bool is_split, bool is_backward) {
  const std::optional<RopeTable> table = make_rope_table(ctx, z.model, z.s);
  const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = z.s, .b = z.b});
  std::vector<std::pair<Tensor, Tensor>> rotations;
  const std::array<Tensor, 3> inside = is_split ? mixed_parts(ctx, z) : std::array<Tensor, 3>();
  for (size_t i = 0; i < 2; ++i) {
    const Tensor outside = random_tensor(ctx, {z.s, z.b, i == 0 ? z.n : z.g, z.d}, z.model.params_dtype);
    const Tensor other = is_split ? inside[i] : ctx.empty_like("rotated", outside);
    rotations.emplace_back(is_backward ? outside : other, is_backward ? other : outside);
  }
  return [=, &ctx]() mutable {
    for (auto& [from, to] : rotations)
      launch(ctx, {.name = "rope", .shape = &from.shape()}, [&, &x = from, &y = to](auto& stream) {
        kernels::rope(stream, {.x = std::as_const(x).view(),
                               .y = y.view(),
                               .cos = table->cos.view(),
                               .sin = table->sin.view(),
                               .layout = layout.view(),
                               .pairs = table->pairs,
                               .inverse = is_backward});
      });
  };
}

/// The part of all layers that rotates.
double rotating_part(const StepShapes& z) {
  if (!z.has_rotation()) return 0;
  int64_t count = 0;
  for (int64_t layer = 1; layer <= z.model.num_layers; ++layer) count += !z.model.skips_rope(layer);
  return static_cast<double>(count) / static_cast<double>(z.model.num_layers);
}

}  // namespace

/// As SelfAttention::forward chooses: copies where norms stand between the projection and attention or where groups
/// share keys, a rotation on the way out with the values copied, else views.
void add_position_cases(const StepShapes& z, const StageParts& stage, std::vector<KernelCase>& cases) {
  const auto layers = static_cast<double>(stage.num_layers * z.num_microbatches);
  const double element = static_cast<double>(size_of(z.model.params_dtype));
  const double rotating = layers * rotating_part(z);
  const bool has_norms = z.has_norms_of_heads();
  const double copying = has_norms ? layers : z.reads_projection() ? 0 : layers - rotating;
  for (const bool is_backward : {false, true}) {
    const std::string suffix = is_backward ? " backward" : " forward";
    add_memory_case({.name = "split qkv" + suffix,
                     .calls = copying,
                     .bytes = 2 * element * static_cast<double>(z.t * z.qkv_columns()),
                     .prepare = [=](const Context& ctx) { return split(ctx, z, 3, is_backward); }},
                    cases);
    add_memory_case({.name = "split values" + suffix,
                     .calls = has_norms ? 0 : rotating,
                     .bytes = 2 * element * static_cast<double>(z.t * z.g * z.d),
                     .prepare = [=](const Context& ctx) { return split(ctx, z, 1, is_backward); }},
                    cases);
    add_memory_case({.name = "rope" + suffix,
                     .calls = rotating,
                     .bytes = 2 * element * static_cast<double>(z.t * (z.n + z.g) * z.d),
                     .prepare = [=](const Context& ctx) { return rotate(ctx, z, !has_norms, is_backward); }},
                    cases);
  }
}

}  // namespace megatron
