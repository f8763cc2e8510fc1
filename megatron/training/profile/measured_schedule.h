// The pipeline schedule of a step as it ran.
#pragma once

#include <span>

#include "megatron/pipeline_parallel/simulator.h"
#include "megatron/telemetry/trace.h"

namespace megatron {

/// Times of the actions F, B, W and BW of the last recorded step, in milliseconds from the first of them; as a
/// simulation has them, so that schedule_chart.h draws it. @param ranks  all ranks, from RankTraceBuilder
Simulation measured_schedule(std::span<const RankTrace> ranks);

}  // namespace megatron
