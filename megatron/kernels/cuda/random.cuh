// The draws of core/random.h on the device, and what kernels read of the step.
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
  return (rows.first_sample + by_b.remainder) * rows.sequence_length + rows.first_position + by_b.quotient;
}

/// SequenceLayoutView::position of row r / b, column r % b.
__device__ inline int64_t position_of(const SequenceLayoutView& layout, int64_t r) {
  return layout.positions ? layout.positions[r] : layout.first_position + divide(r, layout.b).quotient;
}

struct Draws {
  uint32_t w[4];
};
/// draw4() of core/random.h.
__device__ inline Draws draw_four(uint64_t key, int64_t step, int64_t row, int64_t block) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  uint32_t a = static_cast<uint32_t>(block), b = static_cast<uint32_t>(row), c = static_cast<uint32_t>(row >> 32),
           d = static_cast<uint32_t>(step);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * a, p1 = uint64_t{0xCD9E8D57u} * c;
    a = static_cast<uint32_t>(p1 >> 32) ^ b ^ k0;
    c = static_cast<uint32_t>(p0 >> 32) ^ d ^ k1;
    b = static_cast<uint32_t>(p1);
    d = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{a, b, c, d}};
}

}  // namespace megatron::kernels
