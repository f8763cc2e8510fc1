#include "megatron/distributed/buffer_layout.h"

#include <algorithm>
#include <numeric>

namespace megatron {
namespace {

constexpr int64_t kParameterAlignment = 64;       // elements: 128 bytes of 16-bit weights
constexpr int64_t kBucketAlignment = 128;         // elements: 256 bytes, which cuBLAS' choice of algorithm depends on
constexpr int64_t kHighBusbwAlignment = 1 << 16;  // NCCL's bandwidth needs messages divisible by a power of two

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

int64_t bucket_alignment(const BufferLayoutOptions& options) {
  if (!options.use_distributed_optimizer) return 1;
  const int64_t alignment = std::lcm(options.data_parallel_size, kBucketAlignment);
  return options.pad_buckets_for_high_nccl_busbw ? std::lcm(alignment, kHighBusbwAlignment) : alignment;
}

}  // namespace

ElementRange intersection(const ElementRange& a, const ElementRange& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

BufferLayout BufferLayout::make(std::span<const Entry> entries, const BufferLayoutOptions& options) {
  const int64_t start_alignment = options.use_distributed_optimizer ? kParameterAlignment : 1;
  const int64_t end_alignment = bucket_alignment(options);
  BufferLayout layout{
      .slots = std::vector<Slot>(entries.size()), .buckets = {}, .data_parallel_size = options.data_parallel_size};
  Bucket open;
  const auto close = [&](int64_t end) {
    open.num_unpadded = end - open.range.begin;
    open.range.end = round_up(end, end_alignment);
    const int64_t next = open.range.end;
    layout.buckets.push_back(std::move(open));
    open = {.range = {next, next}, .num_unpadded = 0, .entries = {}};
    return next;
  };
  int64_t position = 0;
  for (size_t i = entries.size(); i-- > 0;) {
    // A bucket of its own is cut in the same way on both stages, so that gradients may be summed over stages shard by
    // shard.
    const bool is_alone = entries[i].is_shared_embedding && options.use_distributed_optimizer;
    position = round_up(position, start_alignment);
    if (is_alone && !open.entries.empty()) position = close(position);
    const int64_t end = position + entries[i].num_elements;
    layout.slots[i] = {.range = {position, end}, .bucket = layout.buckets.size()};
    open.entries.push_back(i);
    const bool is_full = options.bucket_size && end - open.range.begin >= *options.bucket_size;
    position = is_full || is_alone ? close(end) : end;
  }
  if (!open.entries.empty()) close(position);
  return layout;
}

int64_t BufferLayout::num_unpadded() const {
  int64_t sum = 0;
  for (const Bucket& bucket : buckets) sum += bucket.num_unpadded;
  return sum;
}

ElementRange BufferLayout::shard(size_t bucket, int64_t rank) const {
  const ElementRange& range = buckets[bucket].range;
  const int64_t size = range.size() / data_parallel_size;
  return {range.begin + rank * size, range.begin + (rank + 1) * size};
}

std::vector<BufferLayout::Piece> BufferLayout::pieces(size_t bucket, int64_t rank) const {
  const ElementRange own = shard(bucket, rank);
  std::vector<Piece> pieces;
  for (size_t entry : buckets[bucket].entries) {
    const ElementRange both = intersection(own, slots[entry].range);
    if (both.size() == 0) continue;
    const auto seen_from = [&](int64_t origin) { return ElementRange{both.begin - origin, both.end - origin}; };
    pieces.push_back({.entry = entry,
                      .in_buffer = both,
                      .in_bucket = seen_from(buckets[bucket].range.begin),
                      .in_shard = seen_from(own.begin),
                      .in_parameter = seen_from(slots[entry].range.begin)});
  }
  return pieces;
}

}  // namespace megatron
