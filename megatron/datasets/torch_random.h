// PyTorch's CPU permutation, bit for bit: the cyclic sampler's order depends on it.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

/// torch.randperm(n, generator=torch.Generator().manual_seed(seed)) on the CPU: a permutation of 0 .. n-1.
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed);

}  // namespace megatron
