// Interleaved 1F1B (Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2), in Megatron Core's order: schedules.py,
// forward_backward_pipelining_with_interleaving.
#pragma once

#include <vector>

#include "megatron/pipeline_parallel/action.h"

namespace megatron {

struct InterleavedOptions {
  int num_ranks = 1;
  int num_chunks = 1;  ///< virtual stages of a rank
  int num_micro_batches = 1;
  int micro_batch_group_size = 1;  ///< consecutive micro-batches on one chunk; num_ranks is depth first
  WeightGradient weight_gradient = WeightGradient::kFused;
};

/// A micro-batch on a chunk.
struct ChunkVisit {
  int micro_batch = 0;
  int chunk = 0;
  bool operator==(const ChunkVisit&) const = default;
};

/// The order of forwards on every rank: groups of micro-batches, each through all chunks. Backwards follow the same
/// table with the chunks reversed. get_schedule_table in Megatron Core.
std::vector<ChunkVisit> schedule_table(int num_micro_batches, int num_chunks, int micro_batch_group_size);

/// Forwards of a rank before its first backward: (num_ranks - rank - 1) * 2 + (num_chunks - 1) * group size, at most
/// all.
int num_warm_up(const InterleavedOptions& options, int rank);

/// The compute actions of `rank`, in order. The group size must be at least num_ranks, and so must the remainder of
/// num_micro_batches: make_schedules checks it.
Schedule interleaved(const InterleavedOptions& options, int rank);

}  // namespace megatron
