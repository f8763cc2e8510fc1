// Best-fit allocation of offsets in an address range without memory behind it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace megatron {

/// Same requests, same offsets. Neighbouring free ranges merge. Sizes are rounded up to the alignment.
class OffsetAllocator {
 public:
  static constexpr int64_t kAlignment = 256;  // bytes: GPU libraries choose algorithms by alignment, up to this one
  explicit OffsetAllocator(int64_t capacity_bytes = 0);

  /// Smallest free range that fits, the lowest of equals; nothing if there is none.
  std::optional<int64_t> allocate(int64_t bytes);
  void release(int64_t offset, int64_t bytes);
  int64_t high_water_bytes() const { return high_water_bytes_; }
  int64_t live_bytes() const { return live_bytes_; }
  static int64_t rounded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

 private:
  void insert_free(int64_t offset, int64_t bytes);
  void erase_free(std::map<int64_t, int64_t>::iterator range);

  std::map<int64_t, int64_t> free_by_offset_;           // offset -> bytes
  std::set<std::pair<int64_t, int64_t>> free_by_size_;  // (bytes, offset)
  int64_t high_water_bytes_ = 0, live_bytes_ = 0;
};

}  // namespace megatron
