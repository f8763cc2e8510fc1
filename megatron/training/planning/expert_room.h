// How much room a rank's experts have for the tokens of other ranks, where no flag says it.
#pragma once

#include <functional>

#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// Whether all ranks' GPUs have the memory that a run needs, its repeated steps included (plan_steps()). Ranks call it
/// together and get the same answer.
using FitsInMemory = std::function<bool(const PretrainConfig&)>;

/// The run with the most room that fits: for any routing; or for a multiple of the tokens of balanced experts, where a
/// step with more is repeated in as few rounds as fit (MoeConfig::expert_rank_capacity_factor, num_exact_rounds). The
/// run itself if it shares no experts or nothing fits. A factor that was given stays.
PretrainConfig with_expert_room(const PretrainConfig& config, const FitsInMemory& fits);

/// Describes the choice in words; empty if there is room for any routing.
std::string expert_room_text(const PretrainConfig& config);

}  // namespace megatron
