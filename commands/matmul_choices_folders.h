// Folders in which 'megatron bench gemm --tune' keeps its measured choices, and training looks for them.
#pragma once

#include <string>
#include <vector>

namespace megatron {

/// Folders benchmarks/tuned beside the folder of the program and one further up: in a bundle, and in a source tree with
/// its build directory. @param program  path of the program
std::vector<std::string> matmul_choices_folders(const std::string& program);

}  // namespace megatron
