// Ranks as processes of this host, started by one command of the program.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Starts `num_ranks` processes of this program, `megatron COMMAND ARGUMENTS`, with the environment of
/// torchrun, serves their store and waits for them. @return the exit status, see run_processes()
int start_ranks(int num_ranks, std::string_view command, const std::vector<std::string>& arguments, std::ostream& err);

}  // namespace megatron
