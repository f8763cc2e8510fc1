// How fast a machine could train a model if nothing but the kernels of a step took time.
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
  /// In a step, at its best.
  double seconds() const { return kernel.calls * timing.best; }
  double operations() const { return kernel.calls * kernel.operations; }
  double bytes() const { return kernel.calls * kernel.bytes; }
};

/// The kernels of a step on the pipeline rank that they keep busy for longest, each measured alone.
struct KernelCeiling {
  std::vector<MeasuredKernel> kernels;
  double copy_bandwidth = 0;     // bytes a second, read and written; 0 if memory-bound kernels were not asked for
  double best_product_rate = 0;  // operations a second, of one case; 0 if products were not asked for
  bool is_complete = true;       // false: all_seconds were over first, and `kernels` lacks some

  double seconds() const;
  double seconds(KernelKind kind) const;
  double operations(KernelKind kind) const;
};

/// The share of the copy's bandwidth that a kernel reaches if it moves no more than it must. @return about 0 to 1
double share_of_bandwidth(const MeasuredKernel& kernel, double copy_bandwidth);

/// Every case is measured once, the way this rank of a layout sees it, on this rank alone: ranks that share a machine's
/// memory will not all reach it at once. A square product of 1024 is measured with the products, for
/// best_product_rate.
/// @param all_seconds  no further case begins after them
KernelCeiling measure_ceiling(const PretrainConfig& config, const std::set<KernelKind>& kinds, BenchDevice& bench,
                              const MeasureOptions& options, Progress& progress,
                              double all_seconds = std::numeric_limits<double>::infinity());

/// The cases of measure_ceiling() with how often a step calls them, on all stages, as text: what differs in it is
/// measured again.
std::string description_of_cases(const PretrainConfig& config);

/// The same for cases that the caller has put together, of one rank.
KernelCeiling measure_cases(const std::vector<KernelCase>& cases, BenchDevice& bench, const MeasureOptions& options,
                            Progress& progress, double all_seconds = std::numeric_limits<double>::infinity());

}  // namespace megatron
