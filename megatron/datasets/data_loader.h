// Prefetches micro-batches in a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "megatron/datasets/dataset.h"
#include "megatron/datasets/micro_batch.h"
#include "megatron/datasets/samplers.h"

namespace megatron {

/// Delivers the micro-batches of a sampler in its order, whatever the timing. `Id` is int32_t or int64_t.
/// One thread may call `next`. The data position is `consumed_samples` only: a loader over a sampler made
/// with that number continues with the batch that this one would deliver next.
template <class Id>
class DataLoader {
 public:
  /// @param dataset         must outlive the loader.
  /// @param prefetch_depth  batches held ready beyond the one in use; 0 reads in `next` itself, without a thread.
  DataLoader(const Dataset& dataset, std::unique_ptr<Sampler> sampler, int prefetch_depth);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Replaces `batch`, whose memory is reused for a later one; false at the end of the data.
  /// @throw the exception of reading the batch, once the batches before it are delivered, and on every later call.
  bool next(MicroBatch<Id>& batch);

  /// Samples that all ranks have consumed with the batches delivered so far.
  int64_t consumed_samples() const { return consumed_samples_; }

 private:
  bool read_next(MicroBatch<Id>& batch);
  void prefetch();

  const Dataset& dataset_;
  const std::unique_ptr<Sampler> sampler_;
  const size_t prefetch_depth_;
  int64_t consumed_samples_;
  std::vector<int64_t> indices_;  // used by the reading thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<MicroBatch<Id>> ready_;    // guarded by mutex_, as all below
  std::vector<MicroBatch<Id>> unused_;  // memory for further batches
  bool at_end_ = false;                 // nothing follows ready_
  std::exception_ptr error_;            // the reason, if at_end_ is not the end of the data
  bool stopping_ = false;
  std::thread thread_;
};

extern template class DataLoader<int32_t>;
extern template class DataLoader<int64_t>;

}  // namespace megatron
