// The numbers of threads with which kernels of the CPU are tested.
#pragma once

#include "megatron/core/stream.h"

namespace megatron::kernels {

inline constexpr CpuStream kOneThread{.num_threads = 1};
inline constexpr CpuStream kTwoThreads{.num_threads = 2};

}  // namespace megatron::kernels
