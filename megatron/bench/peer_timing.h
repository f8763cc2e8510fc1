// Times Transformer Engine's counterparts of our kernels.
#pragma once

#include <map>
#include <string>

#include "megatron/bench/kernel_ceiling.h"

namespace megatron {

struct PeerTiming {
  Timing timing;
  /// The largest difference of its results from ours, in units of the rounding bound; NaN counts as infinite.
  double difference = 0;
  std::string result;  // the result with that difference
  std::string error;   // Transformer Engine's error, if there is no timing
  /// Says whether it computed the same results, so that its time is comparable.
  bool is_right() const { return error.empty() && difference <= 1; }
};

/// Calls both on the same inputs, compares the results, and times theirs. @param kernel  has a peer
/// The rounding bound of values that two kernels compute in fp32 and round to `rounded`: one unit of its last place
/// for each of them, and 8 deviations of a random walk of `length` roundings of the largest value.
PeerTiming measure_peer(BenchDevice& bench, const KernelCase& kernel, const TransformerEngine& engine,
                        const MeasureOptions& options);

/// The timings of all kernels that have a peer, by name.
using PeerTimings = std::map<std::string, PeerTiming>;
PeerTimings measure_peers(const KernelCeiling& ceiling, BenchDevice& bench, const TransformerEngine& engine,
                          const MeasureOptions& options, Progress& progress);

}  // namespace megatron
