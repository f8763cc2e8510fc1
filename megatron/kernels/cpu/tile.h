// Data of the tile kernels, shared by their callers and their implementations.
#pragma once

#include <cstdint>

#include "megatron/core/dtype.h"

namespace megatron::kernels {

/// Rows of a matrix in memory: element (r, c) is data[r * stride + c].
struct TileRows {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t stride = 0;
};
struct TileTarget {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t stride = 0;
};

/// Widths of tiles in scratch memory are multiples of this many elements of the compute type C, so that no vector
/// length needs a remainder loop: 64 bytes.
template <class C>
inline constexpr int64_t kTileAlignment = 64 / sizeof(C);
template <class C>
[[gnu::always_inline]] constexpr int64_t tile_width(int64_t width) {
  return (width + kTileAlignment<C> - 1) / kTileAlignment<C> * kTileAlignment<C>;
}

/// Hands out pieces of scratch memory, each aligned to 64 bytes. Without memory it only counts.
class TileScratch {
 public:
  explicit TileScratch(void* data) : data_(static_cast<char*>(data)) {}
  template <class C>
  [[gnu::always_inline]] inline C* take(int64_t count) {
    char* piece = data_ ? data_ + bytes_ : nullptr;
    bytes_ += (count * static_cast<int64_t>(sizeof(C)) + 63) / 64 * 64;
    return reinterpret_cast<C*>(piece);
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_;
  int64_t bytes_ = 0;
};

}  // namespace megatron::kernels
