// State that the groups of one process share: the lock for MPI, progress, the failure of the world.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "megatron/comm/blocked_operation.h"
#include "megatron/comm/mpi/mpi_control.h"
#include "megatron/comm/mpi/mpi_group.h"
#include "megatron/comm/mpi/mpi_transport.h"

namespace megatron {

/// Thread-safe. A waiting thread drives all operations of the process; while none waits, a service thread does, so
/// that an operation ends although its rank computes, and a rank that hangs in its own code still answers. Waiting
/// threads sleep between polls. After a failure MPI is not called any more, because buffers of operations in flight may
/// be freed: the job can only be ended.
class MpiHub {
 public:
  explicit MpiHub(MpiTransport& transport);
  ~MpiHub();
  MpiHub(const MpiHub&) = delete;
  MpiHub& operator=(const MpiHub&) = delete;

  void join(const FlightRecorder& recorder);
  void leave();
  MpiGroup& make_group(std::string_view name, std::vector<int> ranks, int own, int split);

  /// Starts an operation: `enqueue` adds it to its group. @throw CommError if the world has failed
  void begin(const std::function<void()>& enqueue);
  /// Returns when the operation is done. @throw CommError if it failed or took longer than info.timeout
  void wait(const MpiOperation& operation, const OperationInfo& info);
  /// For a rank that drops an operation: completes it if all ranks have entered; fails the world otherwise, and at
  /// once if an exception ends the owner of the operation.
  void abandon(const MpiOperation& operation, const OperationInfo& info, bool is_unwinding) noexcept;

  /// Fails the world on all ranks. The first reason stays. Any thread, any time.
  void fail(const std::string& text);
  /// Says whether another rank reported the failure.
  bool has_failed_elsewhere() const;

  /// Ends the job on this rank; returns when all ranks have called it. @throw CommError if the world has failed, or
  /// does before that, or ranks have not called it after `timeout`
  /// @param on_hang called in another thread with the reason if MPI itself does not end in that time
  void finish(std::chrono::milliseconds timeout, const std::function<void(const std::string&)>& on_hang);

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Time = std::chrono::steady_clock::time_point;

  void serve(const std::stop_token& stop);
  void progress();
  void advance();
  void handle(const MpiControlMessage& message);
  MpiControlMessage report() const;
  void fail_locked(const std::string& text, bool tell_others);
  void throw_if_failed() const;
  /// The operation in which this rank waits, or finish(); nothing if it does not wait.
  std::optional<BlockedOperation> blocked() const;
  /// Sends this state to the others, and returns when all have sent the same.
  void say_to_all(Lock& lock, MpiControlMessage::Kind kind, std::chrono::milliseconds timeout);
  /// The ranks that have sent it.
  std::set<int>& ranks_that(MpiControlMessage::Kind kind) {
    return kind == MpiControlMessage::Kind::kLeft ? left_ : gone_;
  }
  void drive(Lock& lock, const std::function<bool()>& is_done, std::chrono::milliseconds timeout);
  void time_out(Lock& lock, const std::function<bool()>& is_done, std::chrono::milliseconds timeout);
  bool is_idle() const;

  MpiTransport& transport_;
  mutable std::mutex mutex_;  // guards all below, and is held in every call of MPI
  MpiControl control_;
  std::vector<std::unique_ptr<MpiGroup>> groups_;
  const FlightRecorder* recorder_ = nullptr;
  const MpiOperation* waiting_for_ = nullptr;
  std::map<int, MpiControlMessage> reports_;  // answers to the current query, by rank
  int64_t query_ = 0;
  std::set<int> left_, gone_;
  std::string failure_;
  bool has_failed_elsewhere_ = false, is_finished_ = false;
  std::jthread service_;  // destroyed first
};

}  // namespace megatron
