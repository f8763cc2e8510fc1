// Matmul of small matrices in cache: the inner loop of attention and of the built-in matmul. Only for tiles_*.cpp.
#pragma once

#include <cstdint>

#include "megatron/kernels/cpu/tile_vector.h"

namespace megatron::kernels {

/// c[row, lane] (+)= sum over depth of a[row, depth] * b[depth, lane]. `a` may have any strides: its elements are
/// broadcast. Lanes are contiguous in b and c, and a multiple of kTileAlignment.
template <class C>
struct TileProduct {
  int64_t rows, lanes, depth;
  const C* a;
  int64_t a_row, a_depth;
  const C* b;
  int64_t b_depth;
  C* c;
  int64_t c_row;
  bool accumulate = false;
};

/// R rows by L vectors of c stay in registers.
template <class Isa, class C, int R, int L>
void multiply_block(const TileProduct<C>& t, int64_t row, int64_t lane) {
  using V = Vector<Isa, C>;
  constexpr int64_t kSize = kVectorSize<Isa, C>;
  V sum[R][L];
  C* c = t.c + row * t.c_row + lane;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int l = 0; l < L; ++l) sum[r][l] = t.accumulate ? load<Isa>(c + r * t.c_row + l * kSize) : V{};
  const C* a = t.a + row * t.a_row;
  const C* b = t.b + lane;
  for (int64_t k = 0; k < t.depth; ++k, a += t.a_depth, b += t.b_depth) {
    V x[L];
#pragma GCC unroll 8
    for (int l = 0; l < L; ++l) x[l] = load<Isa>(b + l * kSize);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V factor = broadcast<Isa>(a[r * t.a_row]);
#pragma GCC unroll 8
      for (int l = 0; l < L; ++l) sum[r][l] = Isa::multiply_add(factor, x[l], sum[r][l]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int l = 0; l < L; ++l) store<Isa>(c + r * t.c_row + l * kSize, sum[r][l]);
}

template <class Isa, class C, int R, int L>
void multiply_remaining_rows(const TileProduct<C>& t, int64_t row, int64_t lane) {
  if constexpr (R > 0) {
    if (t.rows - row == R)
      multiply_block<Isa, C, R, L>(t, row, lane);
    else
      multiply_remaining_rows<Isa, C, R - 1, L>(t, row, lane);
  }
}

/// All rows of L vectors. The number of rows in registers leaves some of them for b and the broadcast.
template <class Isa, class C, int L>
void multiply_panel(const TileProduct<C>& t, int64_t lane) {
  constexpr int kFitting = Isa::kAccumulators / L;
  constexpr int kRows = kFitting < 8 ? kFitting : 8;
  int64_t row = 0;
  for (; row + kRows <= t.rows; row += kRows) multiply_block<Isa, C, kRows, L>(t, row, lane);
  multiply_remaining_rows<Isa, C, kRows - 1, L>(t, row, lane);
}

template <class Isa, class C>
void multiply_tile(const TileProduct<C>& t) {
  constexpr int64_t kSize = kVectorSize<Isa, C>;
  constexpr int kVectors = Isa::kAccumulators >= 24 ? 4 : 2;
  int64_t lane = 0;
  for (; lane + kVectors * kSize <= t.lanes; lane += kVectors * kSize) multiply_panel<Isa, C, kVectors>(t, lane);
  const int64_t rest = (t.lanes - lane) / kSize;
  if constexpr (kVectors == 4) {
    if (rest == 3) return multiply_panel<Isa, C, 3>(t, lane);
    if (rest == 2) return multiply_panel<Isa, C, 2>(t, lane);
  }
  if (rest == 1) multiply_panel<Isa, C, 1>(t, lane);
}

}  // namespace megatron::kernels
