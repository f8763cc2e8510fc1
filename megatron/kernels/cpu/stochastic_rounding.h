// Draws and stochastic rounding of pieces.
#pragma once

#include <bit>

#include "megatron/kernels/cpu/simd.h"
#include "megatron/kernels/stochastic_rounding.h"

namespace megatron::kernels {

/// Draws of elements [begin, begin + n) in this step.
void rounding_draws(const StochasticRounding& rounding, int64_t step, int64_t begin, int64_t n, uint32_t* draws);

/// Rounds in place, by 16 bits of each draw: choose(draw).
template <class C, class Choose>
void round_piece(const uint32_t* draws, int64_t n, C* values, const Choose& choose) {
  simd_for(n, [=](int64_t i) {
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(values[i]));
    values[i] = static_cast<C>(std::bit_cast<float>(round_to_bf16(bits, choose(draws[i]))));
  });
}

}  // namespace megatron::kernels
