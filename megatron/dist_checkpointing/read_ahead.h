// Loads the next tensors while the one before them is being written.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "megatron/dist_checkpointing/tensor_source.h"

namespace megatron {

/// Prepares sources in the order in which one thread will read them: one ahead of the one that is being read, and
/// more while they have kBytesAhead together, so that neither thread waits for one slow operation of the other.
///   ReadAhead ahead(sources);
///   for (TensorSource* source : sources) { ahead.next(); ... source->read() ...; source->release(); }
class ReadAhead {
 public:
  static constexpr int64_t kBytesAhead = int64_t{256} << 20;

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
  int64_t bytes_ahead_ = 0;  // of sources that are prepared or being prepared, and not read
  bool is_stopped_ = false;
  std::exception_ptr failure_;  // of the source after the prepared ones
  std::jthread thread_;
};

}  // namespace megatron
