// Turns what ranks compute into what they do: sends and receives are put between.
#pragma once

#include <cstddef>
#include <vector>

#include "megatron/pipeline_parallel/action.h"
#include "megatron/pipeline_parallel/stage_placement.h"

namespace megatron {

/// Payloads on their way over one border in one direction: before a rank sends the next one it waits until the one
/// before has been received, and lets go of it. So memory does not depend on timing.
inline constexpr size_t kMessagesUnderWay = 1;

/// A send comes right behind the action that makes the data. A receive comes before the action that runs on its rank
/// while the data is made, if all actions take equal time: so the buffer is there in time and not much earlier,
/// whatever the schedule. Stages on one rank hand over without a message.
/// @param orders  F, B, W and BW of all ranks.
/// @throw InternalError if the orders cannot run.
std::vector<Schedule> add_communication(const std::vector<Schedule>& orders, const StagePlacement& placement);

}  // namespace megatron
