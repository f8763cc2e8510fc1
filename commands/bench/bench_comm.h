// megatron bench comm: exchanges between ranks, by operation and size.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "commands/bench/bench_config.h"
#include "commands/launch/launch_environment.h"

namespace megatron {

/// @param words  "bench" and its arguments, for ranks that this process starts. @return the exit status
int bench_comm(const BenchConfig& config, const LaunchEnvironment& launch, std::vector<std::string> words,
               std::ostream& out, std::ostream& err);

}  // namespace megatron
