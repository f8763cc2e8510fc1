// megatron COMMAND FLAGS, as a function: programs with layers of their own have the same commands.
#pragma once

#include "megatron/models/gpt/gpt_layer_spec.h"

namespace megatron {

/// @param argc, argv  of main(): nothing else may have run before.
/// @param layer_spec  makes the layers of the models that the commands train, load and verify.
/// @return the exit status of the process.
/// Example: examples/parallel_block.cpp.
int run_program(int argc, char** argv, const LayerSpec& layer_spec = gpt_layer_spec());

}  // namespace megatron
