// Packs of main parameters in two halves, with the functions of flat operands.
#pragma once

#include "megatron/kernels/cuda/operand.cuh"
#include "megatron/kernels/main_params.h"

namespace megatron::kernels {

struct MainHalves {
  uint16_t *weights = nullptr, *remainders = nullptr;
  bool is_vectorised = false;  // packs that begin at multiples of kPack lie at multiples of 16 bytes

  __host__ __device__ MainHalves(uint16_t* weight, uint16_t* remainder)
      : weights(weight),
        remainders(remainder),
        is_vectorised((reinterpret_cast<uintptr_t>(weights) | reinterpret_cast<uintptr_t>(remainders)) % 16 == 0) {}
  __device__ MainHalves(uint16_t* weight, uint16_t* remainder, bool is_aligned)
      : weights(weight), remainders(remainder), is_vectorised(is_aligned) {}
  MainHalves(const View& weight, const View& remainder)
      : MainHalves(static_cast<uint16_t*>(weight.data), static_cast<uint16_t*>(remainder.data)) {
    check_main_halves(weight, remainder);
  }
};

/// Two halves of eight numbers each, in memory order.
struct HalvesPack {
  uint4 weights, remainders;
};
__device__ inline uint32_t upper_half(uint32_t word) { return word >> 16; }
__device__ inline uint32_t joined(uint32_t weight, uint32_t remainder) {
  return join_main_param({static_cast<uint16_t>(weight), static_cast<uint16_t>(remainder)});
}
__device__ inline uint2 joined_pair(uint32_t weights, uint32_t remainders) {
  return make_uint2(joined(weights, remainders), joined(upper_half(weights), upper_half(remainders)));
}

__device__ inline RawPack load_raw(const MainHalves& x, int64_t begin, int n) {
  HalvesPack halves{};
  if (x.is_vectorised && n == kPack) {
    halves.weights = *reinterpret_cast<const uint4*>(x.weights + begin);
    halves.remainders = *reinterpret_cast<const uint4*>(x.remainders + begin);
  } else {
    auto* weights = reinterpret_cast<uint16_t*>(&halves.weights);
    auto* remainders = reinterpret_cast<uint16_t*>(&halves.remainders);
#pragma unroll
    for (int e = 0; e < kPack; ++e)
      if (e < n) weights[e] = x.weights[begin + e], remainders[e] = x.remainders[begin + e];
  }
  const uint2 a = joined_pair(halves.weights.x, halves.remainders.x);
  const uint2 b = joined_pair(halves.weights.y, halves.remainders.y);
  const uint2 c = joined_pair(halves.weights.z, halves.remainders.z);
  const uint2 d = joined_pair(halves.weights.w, halves.remainders.w);
  return {make_uint4(a.x, a.y, b.x, b.y), make_uint4(c.x, c.y, d.x, d.y), DType::kFloat32};
}

/// Two words of 16 bits in one.
__device__ inline uint32_t words_of(uint16_t low, uint16_t high) { return low | static_cast<uint32_t>(high) << 16; }

__device__ inline void store(const MainHalves& y, int64_t begin, int n, const Pack& pack) {
  MainParamHalves halves[kPack];
#pragma unroll
  for (int e = 0; e < kPack; ++e) halves[e] = split_main_param(__float_as_uint(pack.v[e]));
  if (y.is_vectorised && n == kPack) {
    uint32_t weights[kPack / 2], remainders[kPack / 2];
#pragma unroll
    for (int i = 0; i < kPack / 2; ++i) {
      weights[i] = words_of(halves[2 * i].weight, halves[2 * i + 1].weight);
      remainders[i] = words_of(halves[2 * i].remainder, halves[2 * i + 1].remainder);
    }
    *reinterpret_cast<uint4*>(y.weights + begin) = make_uint4(weights[0], weights[1], weights[2], weights[3]);
    *reinterpret_cast<uint4*>(y.remainders + begin) =
        make_uint4(remainders[0], remainders[1], remainders[2], remainders[3]);
  } else {
#pragma unroll
    for (int e = 0; e < kPack; ++e)
      if (e < n) y.weights[begin + e] = halves[e].weight, y.remainders[begin + e] = halves[e].remainder;
  }
}

}  // namespace megatron::kernels
