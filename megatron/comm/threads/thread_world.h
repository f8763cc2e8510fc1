// Ranks as threads of one process.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "megatron/comm/blocked_operation.h"
#include "megatron/comm/world.h"

namespace megatron {

class ThreadHub;

/// The meeting place of `size` ranks, each a thread of this process: the embedded backend for one machine and for
/// tests. Outlives every World that join() gave. Example (rank_threads.h starts the threads and deals with their
/// errors):
///   ThreadWorld ranks(2, std::chrono::minutes(10));
///   // in thread r:
///   auto world = ranks.join(r);
///   ProcessGroup tp = *world->split("tp", {{0, 1}});
///   tp.all_reduce(view, ReduceOp::kSum, {.site = "example"}).wait();
class ThreadWorld {
 public:
  ThreadWorld(int size, std::chrono::milliseconds timeout);
  ~ThreadWorld();

  int size() const { return size_; }
  /// Longest wait of a rank for another one, unless it sets its World's own.
  std::chrono::milliseconds timeout() const { return timeout_; }
  /// Called once for each rank, by its thread. When the result goes, the rank has left: operations that it has not
  /// entered fail on the others. @throw ConfigError if the rank is not in the world or has joined before
  std::unique_ptr<World> join(int rank);
  /// Aborts every group of every rank. Any thread, any time.
  void abort(std::string_view reason);
  /// Aborts every group because `blocked`, which is no operation of a group, has lasted longer than `timeout`. @return
  /// which ranks hold it up, or why the world had failed before
  std::string time_out(const BlockedOperation& blocked, std::chrono::milliseconds timeout);

 private:
  int size_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<ThreadHub> hub_;
};

}  // namespace megatron
