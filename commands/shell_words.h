// Command lines to copy into a shell.
#pragma once

#include <string>
#include <vector>

namespace megatron {

/// The words as one line that a POSIX shell splits into the same words, quoted where necessary.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace megatron
