// --log-straggler: the slowest ranks and the reasons. Megatron Core: core/utils.py, StragglerDetector.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "megatron/telemetry/timestamp.h"

namespace megatron {

/// Seconds of a step of one rank. Waits of tensor parallelism are part of the phase in which they occur.
struct RankWork {
  double forward = 0, backward = 0;  // computing
  double optimizer = 0;
  double data = 0;     // reading its batch
  double waiting = 0;  // for neighbours in the pipeline, and in collectives of gradients and weights

  double own() const { return forward + backward + optimizer + data; }
  RankWork operator/(double divisor) const {
    return {forward / divisor, backward / divisor, optimizer / divisor, data / divisor, waiting / divisor};
  }
};

struct StragglerReportOptions {
  WallTime time;
  double forward_operations = 0;  // per rank and step
  size_t num_listed = 1;          // above 1: lists this many of the slowest and the fastest ranks
};

/// Megatron's line with the shortest and longest forward passes (MnRtt, MxRtt), batch reads (MnDRtt, MxDRtt) and the
/// forward rates (MnEtpt, MxEtpt), each with its rank; then a line with the slowest rank and the time of its
/// phases.
/// @param ranks  at least one, in order of the world
std::string straggler_report(const StragglerReportOptions& options, std::span<const RankWork> ranks);

}  // namespace megatron
