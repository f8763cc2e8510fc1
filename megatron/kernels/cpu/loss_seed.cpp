#include "megatron/kernels/loss_seed.h"

#include <algorithm>

namespace megatron::kernels {

void loss_seed(const CpuStream&, const LossSeedArgs& args) {
  args.state->loss_seed = args.loss_scale / static_cast<double>(std::max<int64_t>(*args.num_tokens, 1));
}

}  // namespace megatron::kernels
