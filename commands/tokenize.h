// megatron tokenize
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Prints the ids of texts, or the texts of ids. @return the exit status.
int tokenize_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
