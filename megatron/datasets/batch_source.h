// A stream of micro-batches.
#pragma once

#include "megatron/datasets/micro_batch.h"

namespace megatron {

/// The micro-batches of one data-parallel rank, one after the other. One thread uses it.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Replaces `batch` by the next one; false at the end of the data.
  /// @throw DataError if it cannot be read, now and on every later call
  virtual bool next(MicroBatch<int64_t>& batch) = 0;
};

}  // namespace megatron
