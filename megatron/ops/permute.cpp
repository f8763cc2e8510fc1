#include "megatron/ops/permute.h"

#include "megatron/kernels/gather_rows.h"
#include "megatron/kernels/permutation.h"

namespace megatron {
namespace {

Tensor gather(const Context& ctx, std::string_view name, const Tensor& x, const Permutation& p) {
  Tensor rows = p.groups.empty_rows(ctx, name, x.size(1), x.dtype());
  launch(ctx, {.name = "permute"}, [&](auto& stream) {
    kernels::gather_rows(
        stream, {.x = x.view(), .index = p.tokens.view(), .weights = {}, .y = rows.view(), .state = &ctx.step});
  });
  return rows;
}

Tensor combine(const Context& ctx, std::string_view name, const Tensor& rows, const Permutation& p) {
  Tensor y = ctx.empty(name, {p.num_tokens(), rows.size(1)}, rows.dtype());
  launch(ctx, {.name = "unpermute"}, [&](auto& stream) {
    kernels::combine_rows_forward(stream, {.x = rows.view(), .slots = p.slots.view(), .weights = {}, .y = y.view()});
  });
  return y;
}

/// Permute and unpermute are each other's gradient.
struct PermuteNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = was_permute ? combine(b.ctx, "permute.dx", grad_out[0], permutation)
                             : gather(b.ctx, "unpermute.dx", grad_out[0], permutation);
  }
  bool was_permute = false;
  Permutation permutation;
};

struct PermuteProbsNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    Tensor dprobs = b.ctx.empty("permute_probs.dprobs", shape, grad_out[0].dtype());
    launch(b.ctx, {.name = "permute_probs"}, [&](auto& stream) {
      kernels::permute_probs_backward(stream, {.drow_probs = grad_out[0].view(),
                                               .tokens = permutation.tokens.view(),
                                               .groups = permutation.groups.view(),
                                               .dprobs = dprobs.view()});
    });
    grad_in[0] = std::move(dprobs);
  }
  Shape shape;
  Permutation permutation;
};

void record_permute(Context& ctx, bool is_permute, const Tensor& x, const Permutation& permutation, Tensor& y) {
  record(ctx, {}, {x.slot}, {&y}, [&] {
    auto node = std::make_unique<PermuteNode>();
    node->was_permute = is_permute;
    node->permutation = permutation;
    return node;
  });
}

}  // namespace

Permutation sort_by_expert(const Context& ctx, const Tensor& map, const PermutationOptions& options) {
  const int64_t t = map.size(0), e = map.size(1);
  Permutation p{.groups = {.offsets = ctx.empty("permutation.offsets", {e + 1}, DType::kInt32),
                           .capacity = options.capacity,
                           .count = {}},
                .tokens = ctx.empty("permutation.tokens", {options.capacity}, DType::kInt32),
                .slots = ctx.empty("permutation.slots", {t, options.max_experts_per_token}, DType::kInt32)};
  Tensor count = options.is_exact ? Tensor() : ctx.empty("permutation.count", {1}, DType::kInt32);
  p.groups.count = count.storage();
  launch(ctx, {.name = "sort_by_expert"}, [&](auto& stream) {
    kernels::sort_by_expert(stream, {.map = map.view(),
                                     .offsets = p.groups.offsets.view(),
                                     .count = count.view(),
                                     .tokens = p.tokens.view(),
                                     .slots = p.slots.view()});
  });
  return p;
}

Tensor permute(Context& ctx, const Tensor& x, const Permutation& permutation) {
  require<ShapeError>(x.shape().rank() == 2 && x.size(0) == permutation.num_tokens(),
                      "[permute] a tensor of shape {} has not the {} tokens of the routing.", x.shape(),
                      permutation.num_tokens());
  Tensor rows = gather(ctx, "permute.rows", x, permutation);
  record_permute(ctx, true, x, permutation, rows);
  return rows;
}

Tensor permute_probs(Context& ctx, const Tensor& probs, const Permutation& permutation) {
  Tensor row_probs = ctx.empty("permute_probs.rows", {permutation.groups.capacity}, probs.dtype());
  launch(ctx, {.name = "permute_probs"}, [&](auto& stream) {
    kernels::permute_probs_forward(stream, {.probs = probs.view(),
                                            .tokens = permutation.tokens.view(),
                                            .groups = permutation.groups.view(),
                                            .row_probs = row_probs.view()});
  });
  record(ctx, {}, {probs.slot}, {&row_probs}, [&] {
    auto node = std::make_unique<PermuteProbsNode>();
    node->shape = probs.shape();
    node->permutation = permutation;
    return node;
  });
  return row_probs;
}

Tensor unpermute(Context& ctx, const Tensor& rows, const Permutation& permutation) {
  permutation.groups.require_rows("unpermute", rows);
  Tensor y = combine(ctx, "unpermute.y", rows, permutation);
  record_permute(ctx, false, rows, permutation, y);
  return y;
}

}  // namespace megatron
