#include "megatron/core/offset_allocator.h"

#include <algorithm>
#include <iterator>

namespace megatron {

OffsetAllocator::OffsetAllocator(int64_t capacity_bytes) {
  if (capacity_bytes > 0) insert_free(0, capacity_bytes);
}

void OffsetAllocator::insert_free(int64_t offset, int64_t bytes) {
  free_by_offset_.emplace(offset, bytes);
  free_by_size_.emplace(bytes, offset);
}

void OffsetAllocator::erase_free(std::map<int64_t, int64_t>::iterator range) {
  free_by_size_.erase({range->second, range->first});
  free_by_offset_.erase(range);
}

std::optional<int64_t> OffsetAllocator::allocate(int64_t bytes) {
  bytes = rounded(std::max<int64_t>(bytes, 1));
  const auto fit = free_by_size_.lower_bound({bytes, 0});
  if (fit == free_by_size_.end()) return std::nullopt;
  const auto [size, offset] = *fit;
  erase_free(free_by_offset_.find(offset));
  if (size > bytes) insert_free(offset + bytes, size - bytes);
  high_water_bytes_ = std::max(high_water_bytes_, offset + bytes);
  live_bytes_ += bytes;
  return offset;
}

void OffsetAllocator::release(int64_t offset, int64_t bytes) {
  bytes = rounded(std::max<int64_t>(bytes, 1));
  live_bytes_ -= bytes;
  auto next = free_by_offset_.lower_bound(offset);
  if (next != free_by_offset_.end() && next->first == offset + bytes) {
    bytes += next->second;
    const auto merged = next++;
    erase_free(merged);
  }
  if (next != free_by_offset_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      bytes += previous->second;
      erase_free(previous);
    }
  }
  insert_free(offset, bytes);
}

}  // namespace megatron
