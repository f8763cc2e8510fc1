// --check-weight-hash-across-dp-replicas-interval: replicas of the model hold the same weights, bit for bit.
#pragma once

#include "megatron/training/trainer.h"

namespace megatron {

/// Compares a hash of each parameter over the ranks that hold the same part of the model. All ranks call it.
/// @throw Error naming the first parameter that differs and the ranks whose weights are not those of the first one.
void require_equal_replicas(Trainer& trainer);

}  // namespace megatron
