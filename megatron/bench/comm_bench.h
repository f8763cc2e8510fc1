// Measures collectives, sends and receives.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "megatron/bench/kernel_case.h"
#include "megatron/comm/world.h"
#include "megatron/telemetry/progress.h"

namespace megatron {

/// kExchange: every rank sends to the next one and receives from the one before.
enum class CommPattern { kAllReduce, kAllGather, kReduceScatter, kExchange };
inline constexpr std::array kCommPatterns = {CommPattern::kAllReduce, CommPattern::kAllGather,
                                             CommPattern::kReduceScatter, CommPattern::kExchange};
std::string_view name_of(CommPattern pattern);

struct CommTiming {
  CommPattern pattern = CommPattern::kAllReduce;
  int64_t bytes = 0;  // of the whole buffer: the input of all-reduce and reduce-scatter, the output of all-gather
  Timing timing;      // of the slowest rank
  int num_ranks = 1;

  /// Bytes a second of the whole buffer ("algorithm bandwidth").
  double bandwidth() const;
  /// The rate on a link if the operation is a ring: comparable between operations and numbers of ranks. Source:
  /// nccl-tests, doc/PERFORMANCE.md.
  double bus_bandwidth() const;
};

/// Every rank of the world calls it, with a device of its own, and gets the same. Buffers are rounded up to whole
/// elements for each rank. Large buffers are sent fewer than options.repeats times. The group has the name of the
/// tensor-parallel one: GPUs gather and scatter in it as there.
std::vector<CommTiming> measure_comm(World& world, BenchDevice& bench, DType dtype, const std::vector<int64_t>& sizes,
                                     const MeasureOptions& options, Progress& progress);

}  // namespace megatron
