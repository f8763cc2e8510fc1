// Which host memory CUDA has page-locked, and in which pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace megatron {

/// Each piece was locked by a call of its own. A copy must not reach from one into the next: CUDA knows them as
/// different allocations.
class LockedPieces {
 public:
  void add(const std::byte* begin, int64_t bytes) { pieces_[begin] = bytes; }
  void remove(const std::byte* begin) { pieces_.erase(begin); }
  /// How many of the `bytes` from `data` on one copy may take: those up to the end of the piece that has `data`, or all
  /// where none has it.
  int64_t run(const std::byte* data, int64_t bytes) const {
    const auto next = pieces_.upper_bound(data);
    if (next == pieces_.begin()) return bytes;
    const auto& [begin, size] = *std::prev(next);
    return data < begin + size ? std::min(bytes, begin + size - data) : bytes;
  }

 private:
  std::map<const std::byte*, int64_t> pieces_;
};

}  // namespace megatron
