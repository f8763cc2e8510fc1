// Inserts sends and receives into the compute actions of ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "megatron/pipeline_parallel/action.h"
#include "megatron/pipeline_parallel/stage_placement.h"

namespace megatron {

/// Payloads in flight over one border in one direction: before a rank sends the next one it waits until the one
/// before has been received, and frees it. So memory does not depend on timing.
inline constexpr size_t kMessagesUnderWay = 1;

/// A send comes right after the action that produces the data. A receive comes before the action that runs on its rank
/// while the data is produced, if all actions take equal time: so the buffer is posted in time and not much earlier,
/// whatever the schedule. Stages on the same rank pass tensors without a send.
/// @param orders  F, B, W and BW of all ranks.
/// @throw InternalError if the orders cannot run.
std::vector<Schedule> add_communication(const std::vector<Schedule>& orders, const StagePlacement& placement);

}  // namespace megatron
