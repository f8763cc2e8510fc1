// 1F1B: one forward, one backward (Narayanan et al. 2021, arXiv:2104.04473, section 2.2.1).
#pragma once

#include "megatron/pipeline_parallel/action.h"

namespace megatron {

/// The compute actions of `rank` of `num_ranks` for `num_micro_batches`, in order; one chunk a rank. Rank r keeps at
/// most num_ranks - r micro-batches alive. One rank: forward and backward of each micro-batch in turn. With kSplit W
/// comes right after B.
Schedule one_f_one_b(int rank, int num_ranks, int num_micro_batches, WeightGradient weight_gradient);

}  // namespace megatron
