// megatron bench step: whole training steps, compared with the time that their kernels take alone.
#pragma once

#include <chrono>
#include <iosfwd>
#include <string>
#include <vector>

#include "commands/bench/bench_config.h"
#include "commands/launch/launch_environment.h"

namespace megatron {

/// @param command_line  "bench" and its arguments, for ranks that this process starts
/// @param start  start of the program, for the time to the first step. @return the exit status
int bench_step(const BenchConfig& config, const LaunchEnvironment& launch, std::vector<std::string> command_line,
               std::chrono::system_clock::time_point start, std::ostream& out, std::ostream& err);

}  // namespace megatron
