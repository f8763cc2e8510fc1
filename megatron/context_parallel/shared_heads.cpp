#include "megatron/context_parallel/shared_heads.h"

#include <algorithm>

#include "megatron/context_parallel/order_rows.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/tensor_parallel/row_exchange.h"

namespace megatron {
namespace {

/// How `num_heads` heads of `rows` rows of each rank are shared by the ranks of a group.
struct HeadShares {
  int64_t rows, b, num_heads, d, size;

  int64_t width() const { return std::max<int64_t>(1, num_heads / size); }
  int64_t first_head(int64_t rank) const { return rank * num_heads / size; }
};

void move(const Context& ctx, const Tensor& from, Tensor to, bool adds) {
  launch(ctx, {.name = "copy"}, [&](auto& stream) {
    if (adds)
      kernels::accumulate(stream, {.x = from.view(), .y = to.view()});
    else
      kernels::copy(stream, {.x = from.view(), .y = to.view()});
  });
}

/// A section of rows for each rank with its heads: [rows, b, n, d] to [size * rows, b, width, d].
Tensor sections_of(const Context& ctx, const HeadShares& z, const Tensor& x) {
  Tensor sections =
      ctx.empty("shared_heads.sections", {z.size * z.rows, z.b, z.width(), z.d}, x.dtype(), MemoryUse::kCommunication);
  for (int64_t rank = 0; rank < z.size; ++rank)
    move(ctx, x.detach().slice(2, z.first_head(rank), z.width()), sections.slice(0, rank * z.rows, z.rows), false);
  return sections;
}

/// The inverse. Sums the sections of ranks that have the same head.
Tensor joined(const Context& ctx, const HeadShares& z, const Tensor& sections) {
  Tensor x = ctx.empty("shared_heads.x", {z.rows, z.b, z.num_heads, z.d}, sections.dtype());
  for (int64_t rank = 0; rank < z.size; ++rank) {
    const bool is_shared = rank > 0 && z.first_head(rank) == z.first_head(rank - 1);
    move(ctx, sections.detach().slice(0, rank * z.rows, z.rows), x.slice(2, z.first_head(rank), z.width()), is_shared);
  }
  return x;
}

/// Splitting and joining are each other's gradient.
struct HeadSectionsNode final : Node {
  HeadSectionsNode(const HeadShares& shares, bool was_split) : shares(shares), was_split(was_split) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = was_split ? joined(b.ctx, shares, grad_out[0]) : sections_of(b.ctx, shares, grad_out[0]);
  }
  HeadShares shares;
  bool was_split;
};

}  // namespace

Tensor scatter_heads(Context& ctx, const Tensor& x, const ProcessGroup& group, const RowOrder& order) {
  if (group.size() == 1) return x;
  const HeadShares shares{
      .rows = x.size(0), .b = x.size(1), .num_heads = x.size(2), .d = x.size(3), .size = group.size()};
  require<ShapeError>(
      shares.num_heads % shares.size == 0 || shares.size % shares.num_heads == 0,
      "[scatter_heads] {} heads cannot be shared by {} ranks: one of heads and ranks must divide the other.",
      shares.num_heads, shares.size);
  Tensor sections = sections_of(ctx, shares, x);
  record(ctx, {}, {x.slot}, {&sections}, [&] { return std::make_unique<HeadSectionsNode>(shares, true); });
  return order_by_positions(ctx, exchange_rows(ctx, sections, group, RowExchange::kAllToAll), order);
}

Tensor gather_heads(Context& ctx, const Tensor& x, const ProcessGroup& group, const RowOrder& order) {
  if (group.size() == 1) return x;
  const HeadShares shares{.rows = x.size(0) / group.size(),
                          .b = x.size(1),
                          .num_heads = x.size(2) * group.size(),
                          .d = x.size(3),
                          .size = group.size()};
  const Tensor sections = exchange_rows(ctx, order_by_ranks(ctx, x, order), group, RowExchange::kAllToAll);
  Tensor y = joined(ctx, shares, sections);
  record(ctx, {}, {sections.slot}, {&y}, [&] { return std::make_unique<HeadSectionsNode>(shares, false); });
  return y;
}

}  // namespace megatron
