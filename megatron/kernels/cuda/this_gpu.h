// What this build can do on the GPU that is there.
#pragma once

namespace megatron::kernels {

/// Whether the kernels were compiled for the current GPU's architecture. Makes a context there.
bool has_code_for_this_gpu();

}  // namespace megatron::kernels
