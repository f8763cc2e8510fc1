// Time by class of op, as a profile prints it.
#pragma once

#include <span>
#include <string>

#include "megatron/telemetry/trace.h"

namespace megatron {

/// One line a class: milliseconds a step and percent of the first rank, least and most of all ranks; their sum is the
/// step. @param ranks  with the totals of RankTraceBuilder
std::string profile_table(std::span<const RankTrace> ranks, int64_t num_steps);

}  // namespace megatron
