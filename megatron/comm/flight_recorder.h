// The last operations of a rank, always on: what a hang, a profile and the volume of communication are read from.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/operation.h"

namespace megatron {

/// One operation as one rank saw it. Times are of the steady clock; the epoch value: not yet, or in a CUDA graph.
struct OperationRecord {
  using Time = std::chrono::steady_clock::time_point;

  std::string_view group;  // valid as long as the World that made the group
  CommOp op = CommOp::kBarrier;
  int64_t sequence = 0;
  Site site;
  DType dtype = DType::kUInt8;
  int64_t num_elements = 0;  // of this rank's input; of a receive, and of a broadcast on all ranks: of the buffer
  int peer = -1;             // of a message, or the root of a broadcast; rank in the group
  Time enqueued, waited;     // call of the operation; first wait for it that found it not done
  Time started, ended;       // all ranks had entered; the result was there

  int64_t bytes() const { return num_elements * size_of(dtype); }
  bool has_waited() const { return waited != Time{}; }
  bool has_ended() const { return ended != Time{}; }
  std::string to_string() const { return describe(op, sequence, site.view(), group); }
};

/// Ring buffer of the newest `capacity` operations of one rank over all its groups. Those of a CUDA graph come once, at
/// its recording: what waits in a launch GpuRanks tells. Thread-safe; allocates only when it is made and read.
class FlightRecorder {
 public:
  explicit FlightRecorder(int64_t capacity) : ring_(static_cast<size_t>(capacity)) {}

  /// Number of the new record, for the calls below; those ignore a record that has been overwritten.
  int64_t add(const OperationRecord& record);
  void waited(int64_t number, OperationRecord::Time time);
  void ended(int64_t number, OperationRecord::Time started, OperationRecord::Time ended);

  /// Number of operations so far; those from num_operations() - capacity on are kept.
  int64_t num_operations() const;
  /// Kept records from number `first` on, oldest first.
  std::vector<OperationRecord> since(int64_t first) const;
  std::optional<OperationRecord> last() const;

 private:
  OperationRecord* find(int64_t number);
  mutable std::mutex mutex_;
  std::vector<OperationRecord> ring_;
  int64_t num_operations_ = 0;
};

}  // namespace megatron
