// The command `megatron checkpoint`.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Inspects, verifies, compares and prunes checkpoints.
/// @param args  the words after "checkpoint". @return the exit status; as `diff`, 1 where two checkpoints differ.
int checkpoint_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
