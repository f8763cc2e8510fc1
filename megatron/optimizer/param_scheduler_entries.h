// The schedule's state under the names that Megatron's checkpoints use.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>

#include "megatron/optimizer/param_scheduler.h"

namespace megatron {

/// The entry `opt_param_scheduler` of a checkpoint.
using ParamSchedulerEntries = std::map<std::string, std::variant<int64_t, double, std::string>, std::less<>>;

ParamSchedulerEntries to_entries(const ParamSchedulerState& state);

/// Understands older names too: start_lr; warmup_iter, warmup_steps; end_iter, decay_steps; decay_style; num_iters.
/// @throw CheckpointError naming an entry that is missing or is of the wrong kind.
ParamSchedulerState param_scheduler_state_of(const ParamSchedulerEntries& entries);

}  // namespace megatron
