// Draws and rounding of packs.
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

/// Draws of elements [begin, begin + n); the others are not defined.
__device__ inline PackDraws rounding_draws(const StochasticRounding& rounding, int64_t step, int64_t begin, int n) {
  PackDraws pack;
  const ElementRun run = run_at(rounding.numbers, begin);
  if (run.length >= kPack && run.number % 4 == 0) {
    const Draws a = rounding_draws(rounding, step, run.number / 4),
                b = rounding_draws(rounding, step, run.number / 4 + 1);
#pragma unroll
    for (int e = 0; e < 4; ++e) pack.w[e] = a.w[e], pack.w[4 + e] = b.w[e];
    return pack;
  }
  Draws four = {};
  int64_t block = -1;
#pragma unroll
  for (int e = 0; e < kPack; ++e) {
    if (e >= n) continue;
    const int64_t number = run_at(rounding.numbers, begin + e).number;
    if (number / 4 != block) {
      block = number / 4;
      four = rounding_draws(rounding, step, block);
    }
    const int lane = static_cast<int>(number % 4);
    pack.w[e] = lane == 0 ? four.w[0] : lane == 1 ? four.w[1] : lane == 2 ? four.w[2] : four.w[3];
  }
  return pack;
}

/// One of the two neighbours in bf16, by 16 bits of a draw.
__device__ inline float rounded_to_bf16(float x, uint32_t draw) {
  return __uint_as_float(round_to_bf16(__float_as_uint(x), draw));
}

}  // namespace megatron::kernels
