// Loads the next tensor while the one before it is being written.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "megatron/dist_checkpointing/tensor_source.h"

namespace megatron {

/// Prepares sources in the order in which one thread will read them, at most one ahead of the one that is being read:
///   ReadAhead ahead(sources);
///   for (TensorSource* source : sources) { ahead.next(); ... source->read() ...; source->release(); }
class ReadAhead {
 public:
  /// @param sources  must outlive this object.
  explicit ReadAhead(std::vector<TensorSource*> sources);
  /// Waits for a source that is being prepared.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// Waits until the next source is prepared. @throw what its prepare() has thrown
  void next();

 private:
  void prepare_all();

  std::vector<TensorSource*> sources_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t num_prepared_ = 0, num_read_ = 0;
  bool is_stopped_ = false;
  std::exception_ptr failure_;  // of the source after the prepared ones
  std::jthread thread_;
};

}  // namespace megatron
