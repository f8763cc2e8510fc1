// Entries of the CPU attention for one instruction set, so that tests reach all of them.
#pragma once

#include "megatron/kernels/attention.h"
#include "megatron/kernels/cpu/instruction_set.h"

namespace megatron::kernels {

void attention_forward_on(InstructionSet set, const CpuStream& stream, const AttentionForwardArgs& args);
void attention_backward_on(InstructionSet set, const CpuStream& stream, const AttentionBackwardArgs& args);

}  // namespace megatron::kernels
