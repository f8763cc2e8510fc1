// Zero-bubble schedules: weight gradients fill the gaps that input gradients leave.
#pragma once

#include "megatron/pipeline_parallel/action.h"

namespace megatron {

/// ZB-H1 (Qi et al. 2023, arXiv:2401.10241, section 2.2): 1F1B whose rank r does each W r micro-batches after its B, so
/// that all ranks keep up to num_ranks micro-batches alive and the bubble is that of 1F1B less the W of all ranks but
/// one. One chunk a rank.
Schedule zb_h1(int rank, int num_ranks, int num_micro_batches);

/// ZB-V (Qi et al. 2024, arXiv:2405.15362, section 4): two chunks a rank, placed as a V. A rank has no gaps if
/// F, B and W take equal time and there are 2 * num_ranks - 1 micro-batches or more; at most 2 * num_ranks chunks are
/// alive on each rank, as much as num_ranks micro-batches.
Schedule zb_v(int rank, int num_ranks, int num_micro_batches);

}  // namespace megatron
