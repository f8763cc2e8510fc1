// In which form the optimizer keeps what it steps.
#pragma once

#include "megatron/optimizer/optimizer_config.h"

namespace megatron {

/// The numbers that a step updates: the weights, an fp32 copy of them, or weights with the bits that such a copy adds
/// (kernels/main_params.h).
enum class MainParams { kWeights, kCopy, kRemainder };

/// The form for weights of a dtype.
constexpr MainParams main_params_of(DType weight, const OptimizerConfig& config) {
  if (weight != DType::kBFloat16 && weight != DType::kFloat16) return MainParams::kWeights;
  if (weight == DType::kFloat16 || !config.use_precision_aware_optimizer) return MainParams::kCopy;
  return config.main_params_dtype == MainParamsDType::kBFloat16 ? MainParams::kWeights : MainParams::kRemainder;
}

}  // namespace megatron
