#include "megatron/optimizer/global_norm.h"

#include <algorithm>
#include <map>
#include <optional>

#include "megatron/distributed/replica_groups.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/gradient_statistics.h"

namespace megatron {
namespace {

/// The elements of the shard that this rank counts before its replicas divide them, in ascending order and without
/// gaps between two of them: those of the boxes that it owns, without padding rows.
std::vector<ElementRange> counted_elements(const Parameter& parameter) {
  const ShardSpec& shard = parameter.options().shard;
  Box meaningful = Box::whole(shard.global_shape);
  if (shard.unpadded_rows > 0) meaningful.sizes[0] = shard.unpadded_rows;
  const Shape strides = parameter.shape().contiguous_strides();
  std::vector<ElementRange> runs;
  for (const ShardBox& box : parameter.boxes()) {
    const std::optional<Box> counted = intersection(box.global, meaningful);
    if (!box.is_owner || !counted) continue;
    int64_t first = 0;
    for (int dim = 0; dim < strides.rank(); ++dim)
      first += (counted->offsets[dim] - box.global.offsets[dim] + box.local_offsets[dim]) * strides[dim];
    for_each_run(counted->sizes, strides, strides, [&](int64_t a, int64_t, int64_t count) {
      runs.push_back({first + a, first + a + count});
    });
  }
  std::ranges::sort(runs, {}, &ElementRange::begin);
  std::vector<ElementRange> merged;
  for (const ElementRange& run : runs)
    if (!merged.empty() && merged.back().end == run.begin)
      merged.back().end = run.end;
    else
      merged.push_back(run);
  return merged;
}

/// An equal part of what all replicas own alike; with the distributed optimizer no two own the same.
FlatRange part_of_replica(FlatRange owned, const DistributedDataParallel& ddp) {
  if (ddp.config().use_distributed_optimizer) return owned;
  const ProcessGroup replicas = replicas_of(*owned.parameter, ddp.groups()).all;
  const int64_t size = owned.end - owned.begin;
  const auto border = [&](int64_t rank) { return owned.begin + size * rank / replicas.size(); };
  return {owned.parameter, border(replicas.rank()), border(replicas.rank() + 1)};
}

}  // namespace

std::vector<FlatRange> counted_ranges(const FlatRange& range, const DistributedDataParallel& ddp) {
  const FlatRange owned = part_of_replica(range, ddp);
  if (!owned.parameter->options().tied.is_first()) return {};
  std::vector<FlatRange> counted;
  for (const ElementRange& elements : counted_elements(*owned.parameter)) {
    const ElementRange both = intersection({owned.begin, owned.end}, elements);
    if (both.size() > 0) counted.push_back({owned.parameter, both.begin, both.end});
  }
  return counted;
}

std::vector<Tensor> merged_grads(const std::vector<FlatRange>& ranges, const DistributedDataParallel& ddp) {
  std::vector<Tensor> merged;
  for (const auto& buffer : ddp.buffers()) {
    std::map<const Parameter*, int64_t> places;
    for (size_t i = 0; i < buffer->parameters().size(); ++i)
      places[buffer->parameters()[i]] = buffer->layout().slots[i].range.begin;
    std::vector<ElementRange> parts;
    for (const FlatRange& range : ranges)
      if (const auto place = places.find(range.parameter); place != places.end())
        parts.push_back({place->second + range.begin, place->second + range.end});
    std::ranges::sort(parts, {}, &ElementRange::begin);
    for (size_t first = 0, last = 0; first < parts.size(); first = last) {
      for (last = first + 1; last < parts.size() && parts[last].begin == parts[last - 1].end;) ++last;
      merged.push_back(buffer->grads().slice(0, parts[first].begin, parts[last - 1].end - parts[first].begin));
    }
  }
  return merged;
}

GlobalNorm::GlobalNorm(const Context& ctx, const ProcessGroup& group)
    : group_(group),
      results_(ctx.empty("global_norm", {3}, DType::kFloat64, MemoryUse::kOptimizer)),
      sums_(ctx.empty("global_norm.sums", {4}, DType::kInt64, MemoryUse::kOptimizer)),
      guess_(ctx.empty("global_norm.guess", {1}, DType::kFloat64, MemoryUse::kOptimizer)) {
  launch(ctx, [&](auto& stream) { kernels::fill(stream, {.y = results_.view(), .value = 0}); });
}

/// Numbers without a sign are in the order of their bits, NaN above infinity: as integers NaN wins everywhere, which a
/// maximum of numbers does not promise (NCCL passes over NaN). So the flag of overflows goes along: it is copied into
/// the low half of an int64.
void GlobalNorm::find_largest(const Context& ctx, const std::vector<Tensor>& parts, const int32_t* overflow) {
  double* largest = result(kLargest);
  View flag = results_.slice(0, kOverflow, 1).view();
  flag.dtype = DType::kInt32;
  launch(ctx, [&](auto& stream) {
    kernels::copy(stream, {.x = results_.slice(0, kLargest, 1).view(), .y = guess_.view()});
    kernels::fill(stream, {.y = results_.view(), .value = 0});
    kernels::fill(stream, {.y = sums_.view(), .value = 0});
    if (overflow) kernels::copy(stream, {.x = {overflow, DType::kInt32, {1}, {1}}, .y = flag});
  });
  for (const Tensor& part : parts) {
    Tensor workspace =
        ctx.workspace("global_norm.workspace", kernels::gradient_statistics_workspace_bytes(part.num_elements()));
    launch(ctx, [&](auto& stream) {
      kernels::largest_absolute(stream, {.x = part.view(),
                                         .result = largest,
                                         .accumulate = true,
                                         .workspace = workspace.view(),
                                         .guess = guess_.data<double>(),
                                         .limbs = sums_.data<int64_t>()});
    });
  }
  View bits = results_.slice(0, kOverflow, 2).view();
  bits.dtype = DType::kInt64;
  group_.all_reduce(bits, ReduceOp::kMax, {.site = "largest gradient"}).wait();
}

void GlobalNorm::add_squares(const Context& ctx, const std::vector<Tensor>& parts, bool count_zeros) {
  int64_t* sums = sums_.data<int64_t>();
  bool is_first = true;
  for (const Tensor& part : parts) {
    Tensor workspace =
        ctx.workspace("global_norm.workspace", kernels::gradient_statistics_workspace_bytes(part.num_elements()));
    launch(ctx, [&](auto& stream) {
      kernels::squared_sum(stream, {.x = part.view(),
                                    .largest = largest(),
                                    .limbs = sums,
                                    .accumulate = !is_first,
                                    .workspace = workspace.view(),
                                    .guess = guess_.data<double>()});
      if (count_zeros)
        kernels::count_zeros(
            stream, {.x = part.view(), .result = sums + kZeros, .accumulate = true, .workspace = workspace.view()});
    });
    is_first = false;
  }
  group_.all_reduce(sums_.view(), ReduceOp::kSum, {.site = "gradient norm"}).wait();
}

kernels::ClipFactorArgs GlobalNorm::norm_args() {
  return {.largest = largest(), .limbs = sums_.data<int64_t>(), .max_norm = 0, .norm = result(kNorm)};
}

void GlobalNorm::finish(const Context& ctx) {
  launch(ctx, [&](auto& stream) { kernels::clip_factor(stream, norm_args()); });
}

void GlobalNorm::finish(const Context& ctx, double max_norm, bool finds_overflow) {
  kernels::ClipFactorArgs args = norm_args();
  args.max_norm = max_norm;
  args.state = &ctx.step;
  args.finds_overflow = finds_overflow;
  args.extent_overflow = reinterpret_cast<const int64_t*>(result(kOverflow));
  launch(ctx, [&](auto& stream) { kernels::clip_factor(stream, args); });
}

}  // namespace megatron
