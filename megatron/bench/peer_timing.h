// How fast Transformer Engine does what a kernel of ours does.
#pragma once

#include <map>
#include <string>

#include "megatron/bench/kernel_ceiling.h"

namespace megatron {

struct PeerTiming {
  Timing timing;
  /// Of its results from ours: the largest, in units of what rounding explains; NaN counts as infinite.
  double difference = 0;
  std::string result;  // which has that difference
  std::string error;   // why there is no timing, in Transformer Engine's words
  /// Its time is that of the same results.
  bool is_right() const { return error.empty() && difference <= 1; }
};

/// Calls both on the same inputs, compares what they write, and times theirs. @param kernel  has a peer
/// What rounding explains: of values that two kernels form in fp32 and round to `rounded`, one unit of its last place
/// for each of them, and 8 deviations of a random walk of `length` roundings of the largest value.
PeerTiming measure_peer(BenchDevice& bench, const KernelCase& kernel, const TransformerEngine& engine,
                        const MeasureOptions& options);

/// Of all kernels that have a peer, by name.
using PeerTimings = std::map<std::string, PeerTiming>;
PeerTimings measure_peers(const KernelCeiling& ceiling, BenchDevice& bench, const TransformerEngine& engine,
                          const MeasureOptions& options, Progress& progress);

}  // namespace megatron
