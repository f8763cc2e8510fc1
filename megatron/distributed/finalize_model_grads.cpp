#include "megatron/distributed/finalize_model_grads.h"

#include <algorithm>
#include <map>
#include <vector>

#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

/// Part of a gradient that must be summed, and its place in the flat buffer.
struct Piece {
  Tensor grad;
  int64_t begin;
};

/// The sums of one all-reduce.
struct Flat {
  std::vector<Piece> pieces;
  int64_t size = 0;
  bool has_gaps = false;  // places of other ranks' groups
};

/// Boxes that several tensor ranks hold (keys and values of a cut with fewer groups than ranks): a place for each in
/// the buffer, so that the sum over all ranks is that over the ranks that hold it.
void append_shared_boxes(Parameter& parameter, const ProcessGroup& tp, Flat& flat) {
  const ParameterOptions& options = parameter.options();
  std::vector<std::vector<ShardBox>> boxes;  // by rank; those of all ranks have the same sizes
  for (int rank = 0; rank < tp.size(); ++rank) {
    ShardPlace place = options.place;
    place.tensor = {rank, tp.size()};
    boxes.push_back(shard_boxes(options.shard, place));
  }
  for (size_t i = 0; i < boxes[0].size(); ++i) {
    std::vector<Box> distinct;
    for (const std::vector<ShardBox>& of_rank : boxes)
      if (std::ranges::find(distinct, of_rank[i].global) == distinct.end()) distinct.push_back(of_rank[i].global);
    if (std::ssize(distinct) == tp.size()) continue;
    const ShardBox& own = boxes[static_cast<size_t>(tp.rank())][i];
    const int64_t size = own.global.sizes.num_elements();
    flat.pieces.push_back({part_of(parameter.main_grad(), own.local()),
                           flat.size + (std::ranges::find(distinct, own.global) - distinct.begin()) * size});
    flat.size += std::ssize(distinct) * size;
    flat.has_gaps = true;
  }
}

void append(Parameter& parameter, const ProcessGroup& tp, Flat& flat) {
  const ShardSpec& shard = parameter.options().shard;
  if (shard.grad_reduction == GradReduction::kSumOverTensor) {
    flat.pieces.push_back({parameter.main_grad(), flat.size});
    flat.size += parameter.main_grad().num_elements();
  } else if (std::ranges::find(shard.cuts, ShardAxis::kTensor, &ShardCut::axis) != shard.cuts.end()) {
    append_shared_boxes(parameter, tp, flat);
  }
}

void all_reduce(const Context& ctx, DType dtype, Flat& flat, const ProcessGroup& tp) {
  Tensor buffer = ctx.empty("tensor_parallel_grads", {flat.size}, dtype, MemoryUse::kCommunication);
  const auto place_of = [&](const Piece& piece) {
    return buffer.slice(0, piece.begin, piece.grad.num_elements()).reshape(piece.grad.shape());
  };
  if (flat.has_gaps)
    launch(ctx, {.name = "fill"}, [&](auto& stream) { kernels::fill(stream, {.y = buffer.view(), .value = 0}); });
  for (const Piece& piece : flat.pieces) {
    Tensor place = place_of(piece);
    launch(ctx, {.name = "copy"},
           [&](auto& stream) { kernels::copy(stream, {.x = piece.grad.view(), .y = place.view()}); });
  }
  tp.all_reduce(buffer.view(), ReduceOp::kSum,
                {.site = "tensor-parallel grads", .keep_alive = KeepAlive::of(buffer.storage())})
      .wait();
  for (Piece& piece : flat.pieces) {
    const Tensor place = place_of(piece);
    launch(ctx, {.name = "copy"},
           [&](auto& stream) { kernels::copy(stream, {.x = place.view(), .y = piece.grad.view()}); });
  }
}

}  // namespace

void all_reduce_tensor_parallel_grads(const Context& ctx, std::span<Parameter* const> parameters,
                                      const ProcessGroup& tp) {
  if (tp.size() == 1) return;
  std::map<DType, Flat> flats;
  for (Parameter* parameter : parameters) {
    if (!parameter->is_trainable()) continue;
    require(parameter->main_grad().defined(), "[finalize_model_grads] {} has no gradient.", parameter->name());
    append(*parameter, tp, flats[parameter->main_grad().dtype()]);
  }
  for (auto& [dtype, flat] : flats)
    if (flat.size > 0) all_reduce(ctx, dtype, flat, tp);
}

void all_reduce_tied_grads(std::span<Parameter* const> parameters, const ProcessGroupCollection& groups) {
  for (Parameter* parameter : parameters) {
    const TiedCopy& tied = parameter->options().tied;
    if (!parameter->is_trainable() || tied.num_holders == 1) continue;
    require(groups.embd && groups.embd->size() == tied.num_holders,
            "[finalize_model_grads] {} is tied between {} pipeline ranks, their group has {}. Make the groups with the "
            "ranks of PipelineLayout::word_embeddings.",
            parameter->name(), tied.num_holders, groups.embd ? groups.embd->size() : 0);
    groups.embd->all_reduce(parameter->main_grad().view(), ReduceOp::kSum, {.site = "tied embedding gradient"}).wait();
  }
}

}  // namespace megatron
