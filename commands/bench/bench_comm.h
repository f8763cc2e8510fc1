// megatron bench comm: collectives, sends and receives, by operation and size.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "commands/bench/bench_config.h"
#include "commands/launch/launch_environment.h"

namespace megatron {

/// @param command_line  "bench" and its arguments, for ranks that this process starts. @return the exit status
int bench_comm(const BenchConfig& config, const LaunchEnvironment& launch, std::vector<std::string> command_line,
               std::ostream& out, std::ostream& err);

}  // namespace megatron
