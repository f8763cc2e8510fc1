#include "megatron/context_parallel/shared_heads.h"

#include <algorithm>

#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

/// How `num_heads` heads and `rows` rows of each rank are shared by the ranks of a group.
struct HeadShares {
  int64_t rows, b, num_heads, d, size;

  int64_t width() const { return std::max<int64_t>(1, num_heads / size); }
  int64_t first_head(int64_t rank) const { return rank * num_heads / size; }
  int64_t chunk() const { return rows / 2; }
  Shape section() const { return {rows, b, width(), d}; }
  Shape sections() const { return {size * rows, b, width(), d}; }
  /// The first row of a rank's chunk among the rows of all ranks.
  int64_t first_row(int64_t rank, int64_t index) const { return (index == 0 ? rank : 2 * size - 1 - rank) * chunk(); }
};

void move(const Context& ctx, const Tensor& from, Tensor to, bool adds) {
  launch(ctx, {.name = "copy"}, [&](auto& stream) {
    if (adds)
      kernels::accumulate(stream, {.x = from.view(), .y = to.view()});
    else
      kernels::copy(stream, {.x = from.view(), .y = to.view()});
  });
}

Tensor exchanged(const Context& ctx, const ProcessGroup& group, const Tensor& x, std::string_view site) {
  Tensor y = ctx.empty(site, x.shape(), x.dtype(), MemoryUse::kCommunication);
  group.all_to_all(x.view(), y.view(), {.site = site, .keep_alive = KeepAlive::of(x.storage(), y.storage())}).wait();
  return y;
}

Tensor heads_of_all_rows(const Context& ctx, const ProcessGroup& group, const HeadShares& z, const Tensor& x) {
  Tensor packed = ctx.empty("scatter_heads.x", z.sections(), x.dtype(), MemoryUse::kCommunication);
  for (int64_t rank = 0; rank < z.size; ++rank)
    move(ctx, x.detach().slice(2, z.first_head(rank), z.width()), packed.slice(0, rank * z.rows, z.rows), false);
  const Tensor received = exchanged(ctx, group, packed, "heads of all tokens");
  Tensor y = ctx.empty("scatter_heads.y", z.sections(), x.dtype());
  for (int64_t rank = 0; rank < z.size; ++rank)
    for (int64_t index = 0; index < 2; ++index)
      move(ctx, received.slice(0, rank * z.rows + index * z.chunk(), z.chunk()),
           y.slice(0, z.first_row(rank, index), z.chunk()), false);
  return y;
}

/// Sums the gradients of a head that several ranks have.
Tensor rows_of_all_heads(const Context& ctx, const ProcessGroup& group, const HeadShares& z, const Tensor& y) {
  Tensor packed = ctx.empty("gather_heads.x", z.sections(), y.dtype(), MemoryUse::kCommunication);
  for (int64_t rank = 0; rank < z.size; ++rank)
    for (int64_t index = 0; index < 2; ++index)
      move(ctx, y.detach().slice(0, z.first_row(rank, index), z.chunk()),
           packed.slice(0, rank * z.rows + index * z.chunk(), z.chunk()), false);
  const Tensor received = exchanged(ctx, group, packed, "tokens of all heads");
  Tensor x = ctx.empty("gather_heads.y", {z.rows, z.b, z.num_heads, z.d}, y.dtype());
  for (int64_t rank = 0; rank < z.size; ++rank) {
    const bool is_shared = rank > 0 && z.first_head(rank) == z.first_head(rank - 1);
    move(ctx, received.slice(0, rank * z.rows, z.rows), x.slice(2, z.first_head(rank), z.width()), is_shared);
  }
  return x;
}

struct SharedHeadsNode final : Node {
  SharedHeadsNode(const ProcessGroup& group, const HeadShares& shares, bool scatters)
      : group(group), shares(shares), scatters(scatters) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = scatters ? rows_of_all_heads(b.ctx, group, shares, grad_out[0])
                          : heads_of_all_rows(b.ctx, group, shares, grad_out[0]);
  }
  ProcessGroup group;
  HeadShares shares;
  bool scatters;
};

}  // namespace

Tensor scatter_heads(Context& ctx, const Tensor& x, const ProcessGroup& group) {
  if (group.size() == 1) return x;
  const HeadShares shares{
      .rows = x.size(0), .b = x.size(1), .num_heads = x.size(2), .d = x.size(3), .size = group.size()};
  require<ShapeError>(
      shares.rows % 2 == 0 && (shares.num_heads % shares.size == 0 || shares.size % shares.num_heads == 0),
      "[scatter_heads] {} rows in two chunks and {} heads cannot be shared by {} ranks: one of heads and "
      "ranks must divide the other.",
      shares.rows, shares.num_heads, shares.size);
  Tensor y = heads_of_all_rows(ctx, group, shares, x);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<SharedHeadsNode>(group, shares, true); });
  return y;
}

Tensor gather_heads(Context& ctx, const Tensor& x, const ProcessGroup& group) {
  if (group.size() == 1) return x;
  const HeadShares shares{.rows = x.size(0) / group.size(),
                          .b = x.size(1),
                          .num_heads = x.size(2) * group.size(),
                          .d = x.size(3),
                          .size = group.size()};
  require<ShapeError>(x.size(0) % (2 * group.size()) == 0,
                      "[gather_heads] {} rows are not two chunks on each of {} ranks.", x.size(0), group.size());
  Tensor y = rows_of_all_heads(ctx, group, shares, x);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<SharedHeadsNode>(group, shares, false); });
  return y;
}

}  // namespace megatron
