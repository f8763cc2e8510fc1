// Where 'megatron bench gemm --tune' keeps what it has measured, and training looks for it.
#pragma once

#include <string>
#include <vector>

namespace megatron {

/// Folders benchmarks/tuned beside the folder of the program and one further up: of a bundle, and of a source tree with
/// its build directory. @param program  its file
std::vector<std::string> matmul_choices_folders(const std::string& program);

}  // namespace megatron
