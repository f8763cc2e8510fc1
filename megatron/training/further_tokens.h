// What layers for further tokens need of a micro-batch where context-parallel ranks share its samples.
#pragma once

#include <vector>

#include "megatron/core/context_cut.h"
#include "megatron/training/micro_batches.h"

namespace megatron {

/// A rank's part of each micro-batch, as part_of_rank(), where beside every tensor are its values 1 to `num` positions
/// further in the samples (further_name(), 0 behind their ends), which other ranks may hold. The loss masks, of the
/// next and of further tokens, are there of whole samples too (whole_name()): their counts are those of all ranks.
std::vector<OwnedBatch> parts_with_further_tokens(const MicroBatches& whole, const ContextCut& cut, int64_t num);

}  // namespace megatron
