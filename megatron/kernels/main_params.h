// fp32 main parameters whose upper half is the bf16 weight, so that only the lower half is stored in addition.
#pragma once

#include <cstdint>

#include "megatron/core/cuda_stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// The bits of an fp32 number. The weight is rounded to nearest, ties away from zero; the remainder is the number
/// minus the weight, as a signed number of 16 bits. Source: Transformer Engine, FusedAdam with store_param_remainders.
/// A NaN stays NaN, without its lower half: rounding up would turn CUDA's, 0x7FFFFFFF, into a weight of -0.
struct MainParamHalves {
  uint16_t weight, remainder;
};
constexpr MainParamHalves split_main_param(uint32_t bits) {
  constexpr uint32_t kInfinity = 0x7F800000u, kQuiet = 0x0040u;
  if ((bits & ~(1u << 31)) > kInfinity) return {static_cast<uint16_t>((bits >> 16) | kQuiet), 0};
  const uint32_t remainder = bits & 0xFFFFu;
  return {static_cast<uint16_t>((bits >> 16) + (remainder >> 15)), static_cast<uint16_t>(remainder)};
}
constexpr uint32_t join_main_param(MainParamHalves halves) {
  return (static_cast<uint32_t>(halves.weight - (halves.remainder >> 15)) << 16) | halves.remainder;
}

/// @throw DtypeError, ShapeError unless the weight is contiguous bf16 [n] and the remainder contiguous uint8 [n, 2].
void check_main_halves(const ConstView& weight, const ConstView& remainder);
/// @throw DtypeError if there are model weights besides bf16 main parameters, which are themselves the model's weights.
void check_rounded_main(const ConstView& model_weight);

/// All operands are contiguous.
struct SplitMainParamsArgs {
  ConstView main;  // fp32 [n]
  View weight;     // bf16 [n]
  View remainder;  // uint8 [n, 2]
};
void split_main_params(const CpuStream& stream, const SplitMainParamsArgs& args);
void split_main_params(const CudaStream& stream, const SplitMainParamsArgs& args);

struct JoinMainParamsArgs {
  ConstView weight, remainder;  // as above
  View main;
};
void join_main_params(const CpuStream& stream, const JoinMainParamsArgs& args);
void join_main_params(const CudaStream& stream, const JoinMainParamsArgs& args);

}  // namespace megatron::kernels
