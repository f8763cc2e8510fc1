#include "megatron/distributed/finalize_model_grads.h"

#include <map>
#include <vector>

#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

/// Part of a gradient that must be summed, and its place in the flat buffer.
struct Piece {
  Tensor grad;
  int64_t begin;
};

/// What one all-reduce sums.
struct Flat {
  std::vector<Piece> pieces;
  int64_t size = 0;
  bool has_gaps = false;  // places of other ranks' groups
};

/// The replicated sections of a cut with fewer groups than ranks: a place for each group, so that the sum over all
/// ranks is that over the ranks of a group.
void append_shared_sections(Parameter& parameter, const ShardCut& cut, const ProcessGroup& tp, Flat& flat) {
  if (cut.num_groups >= tp.size()) return;
  const std::vector<ShardRange> ranges = local_ranges(cut, tp.rank(), tp.size());
  const int64_t group = tp.rank() / (tp.size() / cut.num_groups);
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (!cut.sections[i].replicated) continue;
    Tensor part = parameter.main_grad().slice(cut.dim, ranges[i].local_begin, ranges[i].length);
    flat.pieces.push_back({part, flat.size + group * part.num_elements()});
    flat.size += cut.num_groups * part.num_elements();
    flat.has_gaps = true;
  }
}

void append(Parameter& parameter, const ProcessGroup& tp, Flat& flat) {
  const ShardSpec& shard = parameter.options().shard;
  if (shard.grad_reduction == GradReduction::kSumOverTensor) {
    flat.pieces.push_back({parameter.main_grad(), flat.size});
    flat.size += parameter.main_grad().num_elements();
  } else if (shard.cut && shard.cut->axis == ShardAxis::kTensor) {
    append_shared_sections(parameter, *shard.cut, tp, flat);
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

void all_reduce_tied_grad(Parameter& copy, const ProcessGroup& holders) {
  if (!copy.is_trainable()) return;
  holders.all_reduce(copy.main_grad().view(), ReduceOp::kSum, {.site = "tied embedding gradient"}).wait();
}

}  // namespace megatron
