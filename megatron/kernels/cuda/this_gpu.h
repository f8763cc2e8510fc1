// Capabilities of this build on the current GPU.
#pragma once

#include <cstdint>

namespace megatron::kernels {

/// Says whether the kernels were compiled for the current GPU's architecture. Creates a context there.
bool has_code_for_this_gpu();

/// Bytes of shared memory that a block of a kernel may have on the current GPU: 227 KiB on compute capability 9.0 and
/// 10.0, 163 KiB on 8.0, 99 KiB on 8.6, 8.9 and 12.0.
int64_t block_shared_bytes();

}  // namespace megatron::kernels
