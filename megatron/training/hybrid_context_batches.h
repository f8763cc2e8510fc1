// Documents of a global batch on as many ranks each as they need (--hybrid-context-parallel).
#pragma once

#include "megatron/comm/process_group_collection.h"
#include "megatron/training/context_batches.h"

namespace megatron {

struct HybridContextOptions {
  int64_t max_seqlen_per_rank = 1;
  int64_t row_multiple = 1;  // a rank's rows divide by it: tensor-parallel ranks with sequence parallelism
};

/// The documents of all data-parallel ranks on those that HybridCpScheduler names. A document that several ranks share
/// is a micro-batch; those that a rank has alone follow each other in one of at most max_seqlen_per_rank tokens. A
/// document ends with the last token that has a weight in the loss, and micro-batches are padded so that they divide,
/// with a loss mask of 0. All ranks of dp_cp call it.
/// @param whole  the rank's micro-batches, as many and of the same size on all data-parallel ranks.
/// @throw ConfigError for a document that is too long for all ranks.
ContextBatches hybrid_context_batches(const MicroBatches& whole, const ProcessGroupCollection& groups,
                                      const HybridContextOptions& options);

/// The same of blank documents, without other ranks: micro-batches with as many rows as a rank's may have, of each
/// number of ranks that may share a document. A step of any documents needs no more memory and no other connections.
ContextBatches longest_hybrid_batches(const MicroBatches& whole, const ProcessGroupCollection& groups,
                                      const HybridContextOptions& options);

}  // namespace megatron
