// Implementation of matmul_tile. Only for tiles_*.cpp.
#pragma once

#include <cstdint>

#include "megatron/kernels/cpu/matmul_tile.h"
#include "megatron/kernels/cpu/tile_gemm.h"
#include "megatron/kernels/cpu/tile_rows.h"

namespace megatron::kernels {

/// op(b)[first : first + depth, all columns] with contiguous, padded columns.
template <class Isa, class C>
Tile<C> load_b(const MatmulTile& t, int64_t first, int64_t depth, const MatmulScratch<C>& x) {
  if (!t.transpose_b) return tile_of<Isa>(t.b, first, depth, t.columns, true, x.b);
  const int64_t width = tile_width<C>(t.columns);
  const TileRows columns{static_cast<const char*>(t.b.data) + first * size_of(t.b.dtype), t.b.dtype, t.b.stride};
  transpose_tile<Isa>(tile_of<Isa>(columns, 0, t.columns, depth, true, x.b_rows), t.columns, width,
                      tile_width<C>(depth), C{1}, x.b);
  return {x.b, width};
}

template <class Isa, class C>
void add_rows(const TileRows& y, int64_t rows, int64_t columns, int64_t width, const MatmulScratch<C>& x) {
  const Tile<C> old = tile_of<Isa>(y, 0, rows, columns, true, x.old);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; c += kVectorSize<Isa, C>)
      store<Isa>(x.sum + r * width + c, load<Isa>(x.sum + r * width + c) + load<Isa>(old.data + r * old.stride + c));
}

template <class Isa, class C>
void matmul_tile(const MatmulTile& t) {
  const MatmulScratch<C> x(t.scratch);
  const int64_t width = tile_width<C>(t.columns);
  for (int64_t i = 0; i < t.rows * width; ++i) x.sum[i] = 0;
  for (int64_t first = 0; first < t.depth; first += kMatmulDepth) {
    const int64_t depth = t.depth - first < kMatmulDepth ? t.depth - first : kMatmulDepth;
    const Tile<C> b = load_b<Isa>(t, first, depth, x);
    if (t.transpose_a) {
      const Tile<C> a = tile_of<Isa>(t.a, first, depth, t.rows, false, x.a);
      multiply_tile<Isa, C>({t.rows, width, depth, a.data, 1, a.stride, b.data, b.stride, x.sum, width, true});
    } else {
      const TileRows rows{static_cast<const char*>(t.a.data) + first * size_of(t.a.dtype), t.a.dtype, t.a.stride};
      const Tile<C> a = tile_of<Isa>(rows, 0, t.rows, depth, false, x.a);
      multiply_tile<Isa, C>({t.rows, width, depth, a.data, a.stride, 1, b.data, b.stride, x.sum, width, true});
    }
  }
  if (t.bias.data) add_rows<Isa>({t.bias.data, t.bias.dtype, 0}, t.rows, t.columns, width, x);
  if (t.accumulate) add_rows<Isa>({t.c.data, t.c.dtype, t.c.stride}, t.rows, t.columns, width, x);
  store_rows<Isa, C>(
      {x.sum, width}, t.rows, t.columns, [](int64_t) { return C{1}; }, t.c, 0);
}

}  // namespace megatron::kernels
