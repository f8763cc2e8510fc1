// megatron bench gemm, attention, ops: kernels alone.
#pragma once

#include "commands/bench/bench_config.h"
#include "megatron/base/file_system.h"
#include "megatron/telemetry/progress.h"

namespace megatron {

/// @param num_threads  of a rank
void bench_kernels(const BenchConfig& config, const PretrainConfig& model, int num_threads, FileSystem& files,
                   Progress& progress);

}  // namespace megatron
