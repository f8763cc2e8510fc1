// Documents of a global batch on as many ranks each as they need (--hybrid-context-parallel).
#pragma once

#include "megatron/comm/process_group_collection.h"
#include "megatron/training/context_batches.h"

namespace megatron {

struct HybridContextOptions {
  int64_t max_seqlen_per_rank = 1;
  int64_t row_multiple = 1;  // a rank's rows divide by it: tensor-parallel ranks with sequence parallelism
};

/// Sends the documents of all data-parallel ranks to those that HybridCpScheduler names, each as a micro-batch. A
/// document is padded behind its last token so that it divides, with a loss mask of 0. All ranks of dp_cp call it.
/// @param whole  the rank's micro-batches, as many and of the same size on all data-parallel ranks.
/// @throw ConfigError for a document that is too long for all ranks.
ContextBatches hybrid_context_batches(const MicroBatches& whole, const ProcessGroupCollection& groups,
                                      const HybridContextOptions& options);

}  // namespace megatron
