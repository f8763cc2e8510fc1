// State that the ranks of a ThreadWorld share: the registry of their groups, the failure of the world, and the waits
// between ranks.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/flight_recorder.h"
#include "megatron/comm/threads/thread_group.h"

namespace megatron {

/// Thread-safe.
class ThreadHub {
 public:
  explicit ThreadHub(int size) : recorders_(static_cast<size_t>(size)), has_joined_(static_cast<size_t>(size)) {}

  /// The recorder is read when the world fails, until leave(). @throw ConfigError if the rank has joined before
  void join(int rank, const FlightRecorder& recorder);
  void leave(int rank);

  /// Group `index` (-1: none) of the `split`-th call of World::split by `rank`; made at the first request.
  /// @throw CommError if another rank made that call with other arguments, or the world has failed.
  ThreadGroup* find_group(int rank, size_t split, std::string_view name, const RankLists& groups, int index);

  /// Aborts every group. The first reason stays. @return the first reason
  std::string fail(const std::string& text);
  /// Fails the world with the ranks that block `blocked`, directly or through other operations. @return the reason of
  /// the world's failure, which may be an earlier one
  std::string time_out(const BlockedOperation& blocked, std::chrono::milliseconds timeout);

 private:
  struct Split {
    int first_rank;  // that called it
    std::string name;
    RankLists groups;
    std::vector<std::unique_ptr<ThreadGroup>> made;
  };
  std::vector<ThreadGroup*> groups() const;
  std::string describe_rank(int rank) const;

  mutable std::mutex mutex_;  // never held while a group's is taken
  std::vector<const FlightRecorder*> recorders_;
  std::vector<bool> has_joined_;
  std::vector<Split> splits_;
  std::string failure_;
};

}  // namespace megatron
