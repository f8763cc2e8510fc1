#include "megatron/context_parallel/gather_sequence.h"

#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/tensor_parallel/collectives.h"

namespace megatron {
namespace {

enum class Direction { kToPositions, kToRanks };

/// Moves chunks between the order of ranks, where each has its two chunks together, and the order of positions.
void move_chunks(const Context& ctx, const ContextCut& cut, Direction direction, const Tensor& from, Tensor& to) {
  const int64_t length = cut.chunk_length();
  for (int64_t rank = 0; rank < cut.size; ++rank) {
    const ContextCut of_rank{.rank = rank, .size = cut.size, .length = cut.length};
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t in_ranks = (2 * rank + i) * length;
      const int64_t in_positions = of_rank.chunks()[static_cast<size_t>(i)] * length;
      const bool to_positions = direction == Direction::kToPositions;
      const Tensor source = from.detach().slice(0, to_positions ? in_ranks : in_positions, length);
      Tensor target = to.slice(0, to_positions ? in_positions : in_ranks, length);
      launch(ctx, {.name = "copy"},
             [&](auto& stream) { kernels::copy(stream, {.x = source.view(), .y = target.view()}); });
    }
  }
}

struct GatherSequenceNode final : Node {
  GatherSequenceNode(const ProcessGroup& group, const ContextCut& cut) : group(group), cut(cut) {}

  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    Tensor of_ranks = b.ctx.empty_like("gather_sequence.dy", grad_out[0]);
    move_chunks(b.ctx, cut, Direction::kToRanks, grad_out[0], of_ranks);
    Pending sum = start_reduce_scatter(b.ctx, group, of_ranks, "gradients of keys");
    sum.work.wait();
    grad_in[0] = std::move(sum.tensor);
  }

  ProcessGroup group;
  ContextCut cut;
};

}  // namespace

Tensor gather_sequence(Context& ctx, const Tensor& x, const ProcessGroup& group, const ContextCut& cut) {
  require<ShapeError>(cut.size == group.size() && cut.rank == group.rank() && x.size(0) == cut.num_rows(),
                      "[gather_sequence] {} rows on rank {} of {} are not rank {} of {} of sequences of {} tokens.",
                      x.size(0), group.rank(), group.size(), cut.rank, cut.size, cut.length);
  const Tensor of_ranks = gather_rows_of_ranks(ctx, group, x, "keys of all tokens");
  Tensor y = ctx.empty("gather_sequence.y", of_ranks.shape(), x.dtype());
  move_chunks(ctx, cut, Direction::kToPositions, of_ranks, y);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<GatherSequenceNode>(group, cut); });
  return y;
}

}  // namespace megatron
