#include <algorithm>
#include <array>

#include "megatron/bench/step_kernels.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/cuda/rope.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/rope.h"
#include "megatron/transformer/rotary_embedding.h"

namespace megatron {
namespace {

/// Queries, keys and values out of the fused projection, or their gradients back into it.
KernelCall split(const Context& ctx, const StepShapes& z, bool is_backward) {
  const DType dtype = z.model.params_dtype;
  const int64_t heads = z.n / z.g;
  Tensor mixed = random_tensor(ctx, {z.s, z.b, z.g, heads + 2, z.d}, dtype);
  const std::array<Tensor, 3> inside = {mixed.slice(3, 0, heads), mixed.slice(3, heads, 1),
                                        mixed.slice(3, heads + 1, 1)};
  std::array<Tensor, 3> parts;
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = random_tensor(ctx, inside[i].shape(), dtype);
  return [=, &ctx]() mutable {
    for (size_t i = 0; i < parts.size(); ++i) {
      Tensor from = inside[i], to = parts[i];
      if (is_backward) std::swap(from, to);
      launch(ctx, [&](auto& stream) { kernels::copy(stream, {.x = from.view(), .y = to.view()}); });
    }
  };
}

KernelCall rotate(const Context& ctx, const StepShapes& z, bool is_backward) {
  const std::optional<RopeTable> table = make_rope_table(ctx, z.model, z.s);
  const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = z.s, .b = z.b});
  Tensor q = random_tensor(ctx, {z.s, z.b, z.n, z.d}, z.model.params_dtype), rotated_q = ctx.empty_like("q", q);
  Tensor k = random_tensor(ctx, {z.s, z.b, z.g, z.d}, z.model.params_dtype), rotated_k = ctx.empty_like("k", k);
  return [=, &ctx]() mutable {
    for (const auto& [x, y] : {std::pair{&q, &rotated_q}, std::pair{&k, &rotated_k}})
      launch(ctx, [&, x = x, y = y](auto& stream) {
        kernels::rope(stream, {.x = x->view(),
                               .y = y->view(),
                               .cos = table->cos.view(),
                               .sin = table->sin.view(),
                               .layout = layout.view(),
                               .pairs = table->pairs,
                               .inverse = is_backward});
      });
  };
}

/// Layers that rotate.
double num_rotating(const TransformerConfig& model) {
  int64_t count = 0;
  for (int64_t layer = 1; layer <= model.num_layers; ++layer) count += !model.skips_rope(layer);
  return static_cast<double>(count);
}

}  // namespace

void add_position_cases(const StepShapes& z, const StageParts& stage, std::vector<KernelCase>& cases) {
  const auto layers = static_cast<double>(stage.num_layers * z.num_microbatches);
  const double element = static_cast<double>(size_of(z.model.params_dtype));
  const bool rotates = z.model.position_embedding_type == PositionEmbeddingType::kRope ||
                       z.model.position_embedding_type == PositionEmbeddingType::kYarn;
  const double rotating = rotates ? layers * num_rotating(z.model) / static_cast<double>(z.model.num_layers) : 0;
  for (const bool is_backward : {false, true}) {
    const std::string suffix = is_backward ? " backward" : " forward";
    add_memory_case({.name = "split qkv" + suffix,
                     .calls = layers,
                     .bytes = 2 * element * static_cast<double>(z.t * z.qkv_columns()),
                     .prepare = [=](const Context& ctx) { return split(ctx, z, is_backward); }},
                    cases);
    add_memory_case({.name = "rope" + suffix,
                     .calls = rotating,
                     .bytes = 2 * element * static_cast<double>(z.t * (z.n + z.g) * z.d),
                     .prepare = [=](const Context& ctx) { return rotate(ctx, z, is_backward); }},
                    cases);
  }
}

}  // namespace megatron
