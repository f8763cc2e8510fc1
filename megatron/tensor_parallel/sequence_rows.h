// Which rows of the residual stream a tensor-parallel rank holds.
#pragma once

#include "megatron/comm/process_group.h"
#include "megatron/core/sequence_layout.h"

namespace megatron {

/// The rows that this rank holds between the parallel regions: under sequence parallelism (Korthikanti et al. 2022,
/// arXiv:2205.05198, section 4.2.2) the group_rank-th of equal runs of positions, else all. Positions and global rows,
/// so also dropout masks, are those of the whole; spans are left out, for attention sees whole sequences.
/// @throw ShapeError if the positions do not divide by the ranks.
SequenceLayoutView sequence_rows(const SequenceLayout& layout, const ProcessGroup& group, bool sequence_parallel);

}  // namespace megatron
