// megatron bench gemm --tune: which algorithms multiply the shapes of a model fastest, kept for later runs.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "commands/bench/bench_config.h"
#include "commands/launch/launch_environment.h"

namespace megatron {

/// Takes the products from a training step of the model, in its layout of ranks, or from --shapes, and adds what it has
/// measured to the file of --matmul-choices, or else benchmarks/tuned/GPU.json.
/// @param words  "bench" and its arguments, for ranks that this process starts. @return the exit status
int bench_tune(const BenchConfig& config, const LaunchEnvironment& launch, std::vector<std::string> words,
               std::ostream& out, std::ostream& err);

}  // namespace megatron
