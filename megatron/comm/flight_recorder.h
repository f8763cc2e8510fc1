// The last operations of a rank, always on: the source for reports of hangs, profiles and communication volume.
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

/// One operation as seen by one rank. Times are of the steady clock; the epoch means not yet, or in a CUDA graph.
struct OperationRecord {
  using Time = std::chrono::steady_clock::time_point;

  std::string_view group;  // valid as long as the World that made the group
  CommOp op = CommOp::kBarrier;
  int64_t sequence = 0;
  Site site;
  DType dtype = DType::kUInt8;
  int64_t num_elements = 0;  // of this rank's input; of the buffer for a receive, and for a broadcast on all ranks
  int peer = -1;             // peer of a send or receive, or root of a broadcast; rank in the group
  Time enqueued, waited;     // call of the operation; first wait that found it not done
  Time started, ended;       // when all ranks had entered; when the result was ready

  int64_t bytes() const { return num_elements * size_of(dtype); }
  bool has_waited() const { return waited != Time{}; }
  bool has_ended() const { return ended != Time{}; }
  std::string to_string() const { return describe(op, sequence, site.view(), group); }
};

/// Ring buffer of the newest `capacity` operations of one rank over all its groups. Those of a CUDA graph appear once,
/// at capture; GpuRanks reports waits in a launch. Thread-safe; allocates only in the constructor and when it is read.
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
