// Command lines that a person can copy.
#pragma once

#include <string>
#include <vector>

namespace megatron {

/// The words as one line that a POSIX shell reads as the same words: quoted where that is needed.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace megatron
