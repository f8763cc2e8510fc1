// megatron bench comm: exchanges between ranks, by operation and size.
#pragma once

#include <iosfwd>

#include "commands/bench_config.h"
#include "commands/launch_environment.h"

namespace megatron {

/// Ranks are threads of this process (--nproc-per-node), or those of a launcher. @return the exit status
int bench_comm(const BenchConfig& config, const LaunchEnvironment& launch, std::ostream& out, std::ostream& err);

}  // namespace megatron
