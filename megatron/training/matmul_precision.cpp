#include "megatron/training/matmul_precision.h"

#include "megatron/kernels/cuda/matmul.h"

namespace megatron {

void set_matmul_precision(Device& device, const PrecisionConfig& precision) {
  if (!precision.takes_tf32()) return;
  if constexpr (kHasCuda) kernels::use_tf32(device.cuda_stream());
}

}  // namespace megatron
