// The command `megatron convert`.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Understands the flags of Megatron-LM's tools/checkpoint/convert.py and does what they ask for by import, export or
/// resharding.
/// @param args  the words after "convert". @return an ExitCode.
int convert_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
