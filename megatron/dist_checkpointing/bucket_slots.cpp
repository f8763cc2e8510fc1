#include "megatron/dist_checkpointing/bucket_slots.h"

namespace megatron {
namespace {

constexpr int64_t kAlignment = 64;  // elements

int64_t aligned(int64_t position) { return (position + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::vector<int64_t> bucket_sizes(std::span<const BucketEntry> entries, const std::optional<int64_t>& limit) {
  std::vector<int64_t> sizes;
  int64_t end = 0;  // in the open bucket; 0: it is empty
  const auto close = [&](int64_t size) {
    sizes.push_back(size);
    end = 0;
  };
  for (size_t i = entries.size(); i-- > 0;) {
    const BucketEntry& entry = entries[i];
    if (entry.is_shared_embedding && end > 0) close(aligned(end));
    end = aligned(end) + entry.num_elements;
    if (entry.is_shared_embedding || (limit && end >= *limit)) close(end);
  }
  if (end > 0) close(end);
  return sizes;
}

std::optional<std::vector<BucketSlot>> bucket_slots(std::span<const BucketEntry> entries,
                                                    std::span<const int64_t> sizes) {
  std::vector<BucketSlot> slots(entries.size());
  size_t bucket = 0;
  int64_t end = 0;
  for (size_t i = entries.size(); i-- > 0;) {
    const int64_t size = entries[i].num_elements;
    int64_t begin = aligned(end);
    if (bucket >= sizes.size()) return std::nullopt;
    if (begin + size > sizes[bucket]) {
      const bool is_full = sizes[bucket] - end < kAlignment;
      if (!is_full || ++bucket >= sizes.size() || size > sizes[bucket]) return std::nullopt;
      begin = 0;
    }
    slots[i] = {bucket, begin};
    end = begin + size;
  }
  if (bucket + 1 != sizes.size() || sizes[bucket] - end >= kAlignment) return std::nullopt;
  return slots;
}

}  // namespace megatron
