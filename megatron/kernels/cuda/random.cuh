// The draws of core/random.h on the device, and the kernels' view of the step.
#pragma once

#include "megatron/core/random.h"
#include "megatron/core/sequence_layout_view.h"
#include "megatron/core/step_state.h"
#include "megatron/kernels/cuda/operand.cuh"

namespace megatron::kernels {

/// RowMap::operator().
__device__ inline int64_t global_row(const RowMap& rows, int64_t r) {
  if (rows.list) r = rows.list[r];
  const Divided by_b = divide(r, rows.b);
  const int64_t position =
      rows.positions ? rows.positions[rows.first_position * rows.b + r] : rows.first_position + by_b.quotient;
  return (rows.first_sample + by_b.remainder) * rows.sequence_length + position;
}

/// SequenceLayoutView::position of row r / b, column r % b.
__device__ inline int64_t position_of(const SequenceLayoutView& layout, int64_t r) {
  return layout.positions ? layout.positions[r] : layout.first_position + divide(r, layout.b).quotient;
}

struct Draws {
  uint32_t w[4];
};
/// One instruction; the compiler would use two for uint64_t{a} * b.
__device__ inline uint2 wide_product(uint32_t a, uint32_t b) {
  uint2 halves;
  asm("{ .reg .u64 p; mul.wide.u32 p, %2, %3; mov.b64 {%0, %1}, p; }"
      : "=r"(halves.x), "=r"(halves.y)
      : "r"(a), "r"(b));
  return halves;
}
/// draw4() of core/random.h.
__device__ inline Draws draw_four(uint64_t key, int64_t step, int64_t row, int64_t block) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  uint32_t a = static_cast<uint32_t>(block), b = static_cast<uint32_t>(row), c = static_cast<uint32_t>(row >> 32),
           d = static_cast<uint32_t>(step);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint2 p0 = wide_product(a, 0xD2511F53u), p1 = wide_product(c, 0xCD9E8D57u);
    a = p1.y ^ b ^ k0;
    c = p0.y ^ d ^ k1;
    b = p1.x;
    d = p0.x;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{a, b, c, d}};
}

}  // namespace megatron::kernels
