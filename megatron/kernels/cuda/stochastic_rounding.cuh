// Draws and stochastic rounding of packs.
#pragma once

#include "megatron/kernels/cuda/random.cuh"
#include "megatron/kernels/stochastic_rounding.h"

namespace megatron::kernels {

struct PackDraws {
  uint32_t w[kPack];
};

/// The four draws of elements 4 * block to 4 * block + 3.
__device__ inline Draws rounding_draws(const StochasticRounding& rounding, int64_t step, int64_t block) {
  return draw_four(rounding.key.value, step, block >> 32, block);
}

/// The draws of eight elements, the first of which has this number, a multiple of four.
__device__ inline PackDraws eight_draws(const StochasticRounding& rounding, int64_t step, int64_t number) {
  PackDraws pack;
  const Draws a = rounding_draws(rounding, step, number / 4), b = rounding_draws(rounding, step, number / 4 + 1);
#pragma unroll
  for (int e = 0; e < 4; ++e) pack.w[e] = a.w[e], pack.w[4 + e] = b.w[e];
  return pack;
}

/// Draws of elements [begin, begin + n) with any numbers; the others are not defined. In sequence, so that packs
/// at ends of runs do not cost registers in all others.
__device__ inline PackDraws scattered_draws(const StochasticRounding& rounding, int64_t step, int64_t begin, int n) {
  PackDraws pack = {};
#pragma unroll 1
  for (int e = 0; e < n; ++e) {
    const int64_t number = run_at(rounding.numbers, begin + e).number;
    const Draws four = rounding_draws(rounding, step, number / 4);
    const int lane = static_cast<int>(number % 4);
    const uint32_t draw = lane == 0 ? four.w[0] : lane == 1 ? four.w[1] : lane == 2 ? four.w[2] : four.w[3];
#pragma unroll
    for (int k = 0; k < kPack; ++k)
      if (k == e) pack.w[k] = draw;
  }
  return pack;
}

/// Draws of the elements of a chunk. Consecutive numbers are computed once; otherwise `rounding` stays in
/// memory, and registers are for the loaded values.
struct ChunkDraws {
  const StochasticRounding* rounding;
  RandomKey key;
  int64_t step, shift;
  bool is_run;

  /// Makes the draws of elements [first, end).
  __device__ ChunkDraws(const StochasticRounding& of_range, int64_t step_number, int64_t first, int64_t end)
      : rounding(&of_range), key(of_range.key), step(step_number) {
    const ElementRun run = run_at(of_range.numbers, first);
    shift = run.number - first;
    is_run = run.length >= end - first;
  }
  /// Returns the draws of a pack; those past its n elements are not defined.
  __device__ PackDraws operator()(int64_t begin, int n) const {
    ElementRun run{begin + shift, kPack};
    if (!is_run) run = run_at(rounding->numbers, begin);
    if (run.length >= n && run.number % 4 == 0) return eight_draws({key, {}}, step, run.number);
    return scattered_draws(*rounding, step, begin, n);
  }
};

/// One of the two neighbours in bf16, by 16 bits of a draw. Numbers that are not finite use the conversion.
__device__ inline float rounded_to_bf16(float x, uint32_t draw) {
  if (!(fabsf(x) < INFINITY)) return x;
  return __uint_as_float((__float_as_uint(x) + draw) & 0xFFFF0000u);
}

}  // namespace megatron::kernels
