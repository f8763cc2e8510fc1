// Tests find the files of this repository here.
#pragma once

#include <string>
#include <string_view>

namespace megatron::testing {

/// The path of a file of this repository, such as source_path("data/tinyshakespeare.txt"); the root for "".
std::string source_path(std::string_view relative = "");

/// The path of a golden file, such as golden_path("training/flops.json"). The folder is tests/golden, or the value of
/// the environment variable MEGATRON_GOLDEN_DIR: other fixtures of the same format then judge the same binaries.
std::string golden_path(std::string_view relative = "");

}  // namespace megatron::testing
