// The kernel ceiling: the speed of training if only the kernels of a step took time.
#pragma once

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "megatron/bench/kernel_case.h"
#include "megatron/bench/step_shapes.h"
#include "megatron/telemetry/progress.h"

namespace megatron {

struct MeasuredKernel {
  KernelCase kernel;
  Timing timing;
  /// Time in a step, at its best.
  double seconds() const { return kernel.calls * timing.best; }
  double operations() const { return kernel.calls * kernel.operations; }
  double bytes() const { return kernel.calls * kernel.bytes; }
};

/// The kernels of a step on the pipeline rank with the longest kernel time, each measured alone.
struct KernelCeiling {
  std::vector<MeasuredKernel> kernels;
  double copy_bandwidth = 0;     // bytes a second, read and written; 0 if memory-bound kernels were not requested
  double best_product_rate = 0;  // operations a second, of one case; 0 if matmuls were not requested
  bool is_complete = true;       // false: all_seconds ran out, and `kernels` lacks some

  double seconds() const;
  double seconds(KernelKind kind) const;
  double operations(KernelKind kind) const;
};

/// The fraction of the copy's bandwidth that a kernel reaches if it moves each operand once. @return about 0 to 1
double share_of_bandwidth(const MeasuredKernel& kernel, double copy_bandwidth);

/// Measures every case once, at the shapes of this rank of a layout, on this rank alone: ranks that share a machine's
/// memory will not all reach it at once. A square matmul of 1024 is measured with the matmuls, for
/// best_product_rate.
/// @param all_seconds  no further case begins after them
KernelCeiling measure_ceiling(const PretrainConfig& config, const std::set<KernelKind>& kinds, BenchDevice& bench,
                              const MeasureOptions& options, Progress& progress,
                              double all_seconds = std::numeric_limits<double>::infinity());

/// The cases of measure_ceiling() with their calls in a step, on all stages, as text. A ceiling is kept for a text, and
/// another text is measured again.
std::string description_of_cases(const PretrainConfig& config);

/// The same for given cases of one rank.
KernelCeiling measure_cases(const std::vector<KernelCase>& cases, BenchDevice& bench, const MeasureOptions& options,
                            Progress& progress, double all_seconds = std::numeric_limits<double>::infinity());

}  // namespace megatron
