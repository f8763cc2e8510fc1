// What ranks connect for before the first training step.
#pragma once

#include "megatron/comm/connection.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// Of rank `rank`: what a training step and an evaluation use. Found by taking both on the meta device, in a world
/// without other ranks, where the calls are those of a real run. @param config  resolved
Connections connections_of_step(const PretrainConfig& config, int rank);

}  // namespace megatron
