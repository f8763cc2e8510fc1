// DualPipeV: forwards of one chunk between backwards of the other.
#pragma once

#include "megatron/pipeline_parallel/action.h"

namespace megatron {

/// DualPipeV (DeepSeek-V3, arXiv:2412.19437, section 3.2.1, in its form for half as many ranks): two chunks a rank,
/// placed as a V. In the steady state each forward of a chunk stands beside a backward of the other, which can hide its
/// communication; weight gradients fill the gaps at the end. At most 2 * num_ranks + 1 chunks are alive on each rank.
/// Without that overlap, and with 2 * num_ranks micro-batches or more, the bubble is (num_ranks - 1) * (F + B - W) if
/// F, B and W take about equal time.
Schedule dual_pipe_v(int rank, int num_ranks, int num_micro_batches);

}  // namespace megatron
