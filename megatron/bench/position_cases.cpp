#include <array>
#include <cmath>
#include <span>

#include "megatron/bench/step_kernels.h"
#include "megatron/bench/transformer_engine.h"
#include "megatron/core/copy.h"
#include "megatron/core/sequence_layout.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/rope.h"
#include "megatron/transformer/layer_plan.h"
#include "megatron/transformer/rotary_embedding.h"

namespace megatron {
namespace {

/// The fused projection, and its queries, keys and values: [s, b, g, heads of the part, d].
Tensor projection(const Context& ctx, const StepShapes& z) {
  return random_tensor(ctx, {z.s, z.b, z.g, z.n / z.g + 2, z.d}, z.model.params_dtype);
}
std::array<Tensor, 3> parts_of(const Tensor& mixed) {
  const int64_t heads = mixed.size(3) - 2;
  return {mixed.slice(3, 0, heads), mixed.slice(3, heads, 1), mixed.slice(3, heads + 1, 1)};
}

/// Copies the last `num_parts` of them to memory of their own, or gradients back.
KernelCall split(const Context& ctx, const StepShapes& z, size_t num_parts, bool is_backward) {
  const std::array<Tensor, 3> inside = parts_of(projection(ctx, z));
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

/// Rotates queries and keys out of the projection or back into it, or, with norms between, in memory of
/// their own.
struct Rotation {
  Rotation(const Context& ctx, const StepShapes& z, bool is_split, bool goes_back)
      : table(*make_rope_table(ctx, z.model, z.s)),
        layout(SequenceLayout::uniform(ctx, {.s = z.s, .b = z.b})),
        mixed(is_split ? projection(ctx, z) : Tensor()),
        is_backward(goes_back) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const Tensor outside =
          random_tensor(ctx, {z.s, z.b, i == 0 ? z.n : z.g, z.d}, z.model.params_dtype, 1, i == 0 ? "q" : "k");
      const Tensor other = is_split ? parts_of(mixed)[i] : ctx.empty_like("rotated", outside);
      operands[i] = is_backward || !is_split ? std::pair(outside, other) : std::pair(other, outside);
    }
  }
  RopeTable table;
  SequenceLayout layout;
  Tensor mixed;
  bool is_backward;
  std::array<std::pair<Tensor, Tensor>, 2> operands;  // of queries and of keys: read, written
};

KernelCall rotate(const Context& ctx, const Rotation& rotation) {
  return [&ctx, o = rotation]() mutable {
    for (auto& [from, to] : o.operands)
      launch(ctx, {.name = "rope", .shape = &from.shape()}, [&, &x = from, &y = to](auto& stream) {
        kernels::rope(stream, {.x = std::as_const(x).view(),
                               .y = y.view(),
                               .cos = std::as_const(o.table.cos).view(),
                               .sin = std::as_const(o.table.sin).view(),
                               .layout = o.layout.view(),
                               .pairs = o.table.pairs,
                               .inverse = o.is_backward});
      });
  };
}

/// [positions, 1, 1, d_rot] fp32: the angle of each element's pair, as Transformer Engine reads it.
Tensor angles_of(const Context& ctx, const RopeTable& table) {
  const std::vector<float> cos = read_values<float>(ctx.device, table.cos);
  const std::vector<float> sin = read_values<float>(ctx.device, table.sin);
  const auto half = static_cast<size_t>(table.cos.size(1));
  const bool is_halves = table.pairs == kernels::RopePairs::kHalves;
  std::vector<float> angles(2 * cos.size());
  for (size_t from = 0; from < cos.size(); ++from) {
    const size_t pair = from % half, row = 2 * (from - pair), to = row + (is_halves ? pair : 2 * pair);
    angles[to] = angles[to + (is_halves ? half : 1)] = std::atan2(sin[from], cos[from]);
  }
  Tensor result = ctx.empty("angles", {table.cos.size(0), 1, 1, 2 * table.cos.size(1)}, DType::kFloat32);
  write_values<float>(ctx.device, angles, result);
  return result;
}

constexpr int64_t kTermsOfRotation = 4;  // two multiplications, and the rounding of the angle in each

PeerCall rotate_peer(const Context& ctx, const TransformerEngine& engine, const StepShapes& z, bool is_backward) {
  const Rotation o(ctx, z, false, is_backward);
  const Tensor q = ctx.empty_like("q", o.operands[0].first), k = ctx.empty_like("k", o.operands[1].first);
  const EngineTensor from_q(engine, o.operands[0].first), from_k(engine, o.operands[1].first), to_q(engine, q),
      to_k(engine, k), angles(engine, angles_of(ctx, o.table)), nothing(engine, Tensor());
  const auto run = [=, &ctx, is_interleaved = o.table.pairs == kernels::RopePairs::kInterleaved,
                    function = is_backward ? engine.call().rope_backward : engine.call().rope_forward,
                    s = static_cast<int>(z.s), b = static_cast<int>(z.b), d = static_cast<int>(z.d),
                    d_rot = static_cast<int>(2 * o.table.cos.size(1))](const EngineTensor& from, const EngineTensor& to,
                                                                       int64_t num_heads) {
    const int n = static_cast<int>(num_heads);
    launch_engine(ctx, [&](TransformerEngine::Stream stream) {
      function(from, nothing, angles, nothing, to, TransformerEngine::kSbhd, is_interleaved, 1, 0, s, b, n, d, d_rot,
               b * n * d, n * d, d, 1, stream);
    });
  };
  return {.theirs =
              [=, n = z.n, g = z.g] {
                run(from_q, to_q, n);
                run(from_k, to_k, g);
              },
          .ours = rotate(ctx, o),
          .results = {{"q", o.operands[0].second, q, z.model.params_dtype, kTermsOfRotation},
                      {"k", o.operands[1].second, k, z.model.params_dtype, kTermsOfRotation}}};
}

/// Out of the projection, or back into it; theirs moves the values too.
PeerCall split_rotate_peer(const Context& ctx, const TransformerEngine& engine, const StepShapes& z, bool is_backward) {
  const Rotation o(ctx, z, true, is_backward);
  const DType dtype = z.model.params_dtype;
  const Tensor mixed = is_backward ? ctx.empty_like("mixed", o.mixed) : o.mixed;
  const Tensor q = is_backward ? o.operands[0].first : ctx.empty("q", {z.s, z.b, z.n, z.d}, dtype);
  const Tensor k = is_backward ? o.operands[1].first : ctx.empty("k", {z.s, z.b, z.g, z.d}, dtype);
  const Tensor v = random_tensor(ctx, {z.s, z.b, z.g, z.d}, dtype, 1, "v");
  const EngineTensor angles(engine, angles_of(ctx, o.table)), nothing(engine, Tensor());
  const EngineTensor engine_mixed(engine, mixed), engine_q(engine, q), engine_k(engine, k), engine_v(engine, v);
  PeerCall call{.theirs = {}, .ours = rotate(ctx, o), .results = {}};
  call.theirs = [=, &ctx, &engine, is_interleaved = o.table.pairs == kernels::RopePairs::kInterleaved,
                 s = static_cast<int>(z.s), b = static_cast<int>(z.b), g = static_cast<int>(z.g),
                 d = static_cast<int>(z.d), d_q = static_cast<int>(z.n / z.g * z.d),
                 d_rot = static_cast<int>(2 * o.table.cos.size(1))] {
    launch_engine(ctx, [&](TransformerEngine::Stream stream) {
      if (is_backward)
        engine.call().qkv_rope_backward(engine_q, engine_k, engine_v, angles, angles, engine_mixed,
                                        TransformerEngine::kSbhd, is_interleaved, 1, 0, s, b, g, d, d_rot, d_q, d, d,
                                        stream);
      else
        engine.call().qkv_rope_forward(engine_mixed, angles, angles, nothing, engine_q, engine_k, engine_v,
                                       TransformerEngine::kSbhd, is_interleaved, 1, 0, s, b, g, d, d_rot, d_q, d, d,
                                       stream);
    });
  };
  const std::array<Tensor, 2> theirs =
      is_backward ? std::array{parts_of(mixed)[0], parts_of(mixed)[1]} : std::array{q, k};
  call.results = {{"q", o.operands[0].second, theirs[0], dtype, kTermsOfRotation},
                  {"k", o.operands[1].second, theirs[1], dtype, kTermsOfRotation}};
  return call;
}

/// The part of all layers with attention that rotates.
double rotating_part(const StepShapes& z) {
  if (!z.has_rotation()) return 0;
  int64_t num_rotating = 0, num_attention = 0;
  for (int64_t layer = 1; layer <= z.model.num_layers; ++layer) {
    if (layer_kind(z.model, layer).mixer != Mixer::kSelfAttention) continue;
    ++num_attention;
    num_rotating += !z.model.skips_rope(layer);
  }
  return num_attention == 0 ? 0 : static_cast<double>(num_rotating) / static_cast<double>(num_attention);
}

}  // namespace

/// The choice of SelfAttention::forward: copies if there are norms between the projection and attention or if groups
/// share keys, a fused rotation with the values copied, else views.
void add_position_cases(const StepShapes& z, const StageParts& stage, std::vector<KernelCase>& cases) {
  const auto layers = static_cast<double>(stage.num_attention * z.num_microbatches);
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
    KernelCase rope{
        .name = "rope" + suffix,
        .calls = rotating,
        .bytes = 2 * element * static_cast<double>(z.t * (z.n + z.g) * z.d),
        .prepare = [=](const Context& ctx) { return rotate(ctx, Rotation(ctx, z, !has_norms, is_backward)); }};
    // YaRN's magnitude is in our table; theirs only has angles.
    if (z.model.position_embedding_type == PositionEmbeddingType::kRope)
      rope.peer = [=](const Context& ctx, const TransformerEngine& engine) {
        return has_norms ? rotate_peer(ctx, engine, z, is_backward) : split_rotate_peer(ctx, engine, z, is_backward);
      };
    rope.peer_note = has_norms
                         ? "computes cos and sin, ours reads a table"
                         : "computes cos and sin, ours reads a table; moves the values too, ours by 'split values'";
    add_memory_case(std::move(rope), cases);
  }
}

}  // namespace megatron
