// One block of the built-in matmul, for the dtypes that the library lacks.
#pragma once

#include <cstdint>

#include "megatron/kernels/cpu/tile.h"

namespace megatron::kernels {

inline constexpr int64_t kMatmulRows = 96, kMatmulColumns = 64, kMatmulDepth = 256;

/// c[0:rows, 0:columns] (+)= op(a) op(b) + bias, where rows <= kMatmulRows and columns <= kMatmulColumns. The views
/// begin at the block: a at its first row (column, if transposed), b at its first column (row, if transposed).
struct MatmulTile {
  int64_t rows = 0, columns = 0, depth = 0;
  TileRows a, b;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  TileRows bias;  // one row; data null: none
  TileTarget c;
  void* scratch = nullptr;
};

template <class Isa, class C>
void matmul_tile(const MatmulTile& tile);

/// Scratch memory of one block; without memory it computes its size.
template <class C>
struct MatmulScratch {
  [[gnu::always_inline]] inline explicit MatmulScratch(void* data)
      : pieces(data),
        a(pieces.take<C>(kMatmulDepth * kMatmulRows + kMatmulRows * kTileAlignment<C>)),
        b(pieces.take<C>(kMatmulDepth * kMatmulColumns)),
        b_rows(pieces.take<C>(kMatmulDepth * kMatmulColumns)),
        sum(pieces.take<C>(kMatmulRows * kMatmulColumns)),
        old(pieces.take<C>(kMatmulRows * kMatmulColumns)) {}
  TileScratch pieces;
  C *a, *b, *b_rows, *sum, *old;
};

}  // namespace megatron::kernels
