// Pieces of main parameters in two halves.
#pragma once

#include <bit>

#include "megatron/kernels/cpu/simd.h"
#include "megatron/kernels/main_params.h"

namespace megatron::kernels {

inline void join_halves(const uint16_t* weights, const uint16_t* remainders, int64_t n, float* main) {
  simd_for(n, [=](int64_t i) { main[i] = std::bit_cast<float>(join_main_param({weights[i], remainders[i]})); });
}

inline void split_halves(const float* main, int64_t n, uint16_t* weights, uint16_t* remainders) {
  simd_for(n, [=](int64_t i) {
    const MainParamHalves halves = split_main_param(std::bit_cast<uint32_t>(main[i]));
    weights[i] = halves.weight;
    remainders[i] = halves.remainder;
  });
}

}  // namespace megatron::kernels
