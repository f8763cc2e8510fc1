#include "megatron/kernels/loss_seed.h"

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

__global__ void loss_seed_kernel(LossSeedArgs args) {
  const int64_t num_tokens = *args.num_tokens > 1 ? *args.num_tokens : 1;
  args.state->loss_seed = args.loss_scale / static_cast<double>(num_tokens);
}

}  // namespace

void loss_seed(const CudaStream& stream, const LossSeedArgs& args) {
  loss_seed_kernel<<<1, 1, 0, stream.stream>>>(args);
  check_launch("loss_seed");
}

}  // namespace megatron::kernels
