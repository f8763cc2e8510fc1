// Brings rows of any dtype into tiles of the compute type and back. Only for tiles_*.cpp.
#pragma once

#include <cstdint>

#include "megatron/kernels/cpu/tile_vector.h"

namespace megatron::kernels {

/// A matrix of the compute type, in scratch memory or in place.
template <class C>
struct Tile {
  const C* data;
  int64_t stride;
};

/// Calls `f.template operator()<T>()` for the dtypes that are computed in C.
template <class C, class F>
[[gnu::always_inline]] inline void dispatch_stored_as(DType dtype, F&& f) {
  if constexpr (std::is_same_v<C, double>) {
    f.template operator()<double>();
  } else {
    if (dtype == DType::kBFloat16)
      f.template operator()<BFloat16>();
    else if (dtype == DType::kFloat16)
      f.template operator()<Float16>();
    else
      f.template operator()<float>();
  }
}

/// y[r, c] = x[first + r, c] for c < width, 0 up to tile_width(width).
template <class Isa, class C>
void load_rows(const TileRows& x, int64_t first, int64_t rows, int64_t width, C* y) {
  dispatch_stored_as<C>(x.dtype, [&]<class T>() {
    constexpr int64_t kSize = kVectorSize<Isa, C>;
    for (int64_t r = 0; r < rows; ++r, y += tile_width<C>(width)) {
      const T* row = static_cast<const T*>(x.data) + (first + r) * x.stride;
      int64_t c = 0;
      for (; c + kSize <= width; c += kSize) store<Isa>(y + c, load_as<Isa, C>(row + c));
      for (; c < width; ++c) y[c] = static_cast<C>(row[c]);
      for (; c < tile_width<C>(width); ++c) y[c] = 0;
    }
  });
}

/// The rows in place if they need no conversion or padding, else a copy in `buffer`.
template <class Isa, class C>
Tile<C> tile_of(const TileRows& x, int64_t first, int64_t rows, int64_t width, bool padded, C* buffer) {
  if (x.dtype == dtype_of<C>() && (!padded || width == tile_width<C>(width)))
    return {static_cast<const C*>(x.data) + first * x.stride, x.stride};
  load_rows<Isa>(x, first, rows, width, buffer);
  return {buffer, tile_width<C>(width)};
}

/// y[first + r, c] = factor(r) * x[r, c] for c < width.
template <class Isa, class C, class Factor>
[[gnu::always_inline]] inline void store_rows(const Tile<C>& x, int64_t rows, int64_t width, Factor factor,
                                              const TileTarget& y, int64_t first) {
  dispatch_stored_as<C>(y.dtype, [&]<class T>() {
    constexpr int64_t kSize = kVectorSize<Isa, C>;
    for (int64_t r = 0; r < rows; ++r) {
      T* row = static_cast<T*>(y.data) + (first + r) * y.stride;
      const C scale = factor(r);
      const Vector<Isa, C> scales = broadcast<Isa>(scale);
      int64_t c = 0;
      for (; c + kSize <= width; c += kSize) store_as<Isa, C>(row + c, load<Isa>(x.data + r * x.stride + c) * scales);
      for (; c < width; ++c) row[c] = static_cast<T>(x.data[r * x.stride + c] * scale);
    }
  });
}

/// y[c, r] = factor * x[r, c] for square blocks of one vector, which makes rows and width multiples of its size; x is
/// taken as 0 from row `rows` on.
template <class Isa, class C>
void transpose_tile(const Tile<C>& x, int64_t rows, int64_t lanes, int64_t width, C factor, C* y) {
  using V = Vector<Isa, C>;
  using Index = std::conditional_t<std::is_same_v<C, double>, int64_t, int32_t>;
  constexpr int kSize = static_cast<int>(kVectorSize<Isa, C>);
  Vector<Isa, Index> low{}, high{};  // interleave the halves of two vectors
  for (int i = 0; i < kSize; ++i) {
    low[i] = i / 2 + i % 2 * kSize;
    high[i] = static_cast<Index>(low[i] + kSize / 2);
  }
  for (int64_t r = 0; r < lanes; r += kSize)
    for (int64_t c = 0; c < width; c += kSize) {
      V block[kSize], mixed[kSize];
#pragma GCC unroll 16
      for (int i = 0; i < kSize; ++i)
        block[i] = r + i < rows ? load<Isa>(x.data + (r + i) * x.stride + c) * factor : V{};
#pragma GCC unroll 4
      for (int step = 1; step < kSize; step *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < kSize / 2; ++i) {
          mixed[2 * i] = __builtin_shuffle(block[i], block[i + kSize / 2], low);
          mixed[2 * i + 1] = __builtin_shuffle(block[i], block[i + kSize / 2], high);
        }
#pragma GCC unroll 16
        for (int i = 0; i < kSize; ++i) block[i] = mixed[i];
      }
#pragma GCC unroll 16
      for (int i = 0; i < kSize; ++i) store<Isa>(y + (c + i) * lanes + r, block[i]);
    }
}

}  // namespace megatron::kernels
