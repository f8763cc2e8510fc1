// megatron bench step: whole training steps, and how near they come to what their kernels take alone.
#pragma once

#include <chrono>
#include <iosfwd>
#include <string>
#include <vector>

#include "commands/bench/bench_config.h"
#include "commands/launch/launch_environment.h"

namespace megatron {

/// @param words  "bench" and its arguments, for ranks that this process starts
/// @param start  of the program, for the time to the first step. @return the exit status
int bench_step(const BenchConfig& config, const LaunchEnvironment& launch, std::vector<std::string> words,
               std::chrono::system_clock::time_point start, std::ostream& out, std::ostream& err);

}  // namespace megatron
