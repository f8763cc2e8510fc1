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

/// `size` ranks, each a thread of this process: the embedded backend for one machine and for
/// tests. Outlives every World of join(). Example (rank_threads.h starts the threads and handles their
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
  /// Longest wait of a rank for another one; a World may override it.
  std::chrono::milliseconds timeout() const { return timeout_; }
  /// Called once for each rank, by its thread. Destroying the result leaves the world: operations that the rank has not
  /// entered fail on the others. @throw ConfigError if the rank is not in the world or has joined before
  std::unique_ptr<World> join(int rank);
  /// Aborts every group of every rank. Any thread, any time.
  void abort(std::string_view reason);
  /// Aborts every group because `blocked`, which is not an operation of a group, has exceeded `timeout`. @return
  /// the ranks that block it, or the earlier reason of a failure
  std::string time_out(const BlockedOperation& blocked, std::chrono::milliseconds timeout);

 private:
  int size_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<ThreadHub> hub_;
};

}  // namespace megatron
