#include "megatron/training/startup/matmul_precision.h"

#include <fmt/core.h>

#include "megatron/kernels/cuda/matmul/matmul.h"
#include "megatron/kernels/cuda/matmul/matmul_tuning.h"

namespace megatron {

std::string tf32_obstacle_of(const CudaDeviceFacts& gpu) {
  constexpr int kFirstCapability = 80;  // Ampere
  if (gpu.compute_capability >= kFirstCapability) return "";
  return fmt::format("TF32 takes compute capability 8.0 (Ampere) or a later one, and {} has {}.{}", gpu.name,
                     gpu.compute_capability / 10, gpu.compute_capability % 10);
}

void prepare_matmuls(Device& device, const PrecisionConfig& precision, const kernels::MatmulChoices& choices) {
  if (device.kind() != DeviceKind::kCuda) return;
  if constexpr (kHasCuda) {
    if (precision.takes_tf32()) kernels::use_tf32(device.cuda_stream());
    if (!choices.choices.empty()) kernels::use_matmul_choices(device.cuda_stream(), choices);
  }
}

}  // namespace megatron
