// megatron bench gemm --tune: finds the fastest matmul algorithms for the shapes of a model, for later runs.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "commands/bench/bench_config.h"
#include "commands/launch/launch_environment.h"

namespace megatron {

/// Takes the matmuls of a training step of the model, in its layout of ranks, or of --shapes, and adds the measured
/// choices to the file of --matmul-choices, or else benchmarks/tuned/GPU.json.
/// @param command_line  "bench" and its arguments, for ranks that this process starts. @return the exit status
int bench_tune(const BenchConfig& config, const LaunchEnvironment& launch, std::vector<std::string> command_line,
               std::ostream& out, std::ostream& err);

}  // namespace megatron
