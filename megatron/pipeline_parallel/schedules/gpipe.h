// GPipe: all forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965, section 2.3).
#pragma once

#include "megatron/pipeline_parallel/action.h"

namespace megatron {

/// The compute actions of each rank, one chunk a rank. All micro-batches are alive at once. Backward goes in the order
/// of forward, not in reverse, so that gradients are summed in the order of all other schedules.
Schedule gpipe(int num_micro_batches, WeightGradient weight_gradient);

}  // namespace megatron
