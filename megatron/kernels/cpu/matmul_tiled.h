// Matmuls by built-in tile kernels: fp64, fp16, and bf16 if the library has no kernel for the machine.
#pragma once

#include "megatron/kernels/cpu/instruction_set.h"
#include "megatron/kernels/matmul.h"

namespace megatron::kernels {

int64_t tiled_matmul_workspace_bytes(const CpuStream& stream, const MatmulArgs& args);
/// c (+)= op(a) op(b) + bias for m, n and k of the views' true extents; k may be 0. The order of additions depends on k
/// only.
void tiled_matmul(InstructionSet set, const CpuStream& stream, const MatmulArgs& args);

}  // namespace megatron::kernels
