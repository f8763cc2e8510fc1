// megatron COMMAND FLAGS as a function, for programs with models of their own.
#pragma once

#include <vector>

#include "megatron/models/gpt/gpt_family.h"

namespace megatron {

/// @param argc, argv  those of main(); call it first in main().
/// @param families  each has its pretrain_NAME. The other commands load and verify models of the first.
/// @return the exit status of the process.
/// Example: examples/parallel_block.cpp.
int run_program(int argc, char** argv, const std::vector<ModelFamily>& families = {gpt_family()});

}  // namespace megatron
