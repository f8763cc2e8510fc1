// All ranks of a job as seen by one of them: creates and owns its process groups.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "megatron/comm/flight_recorder.h"
#include "megatron/comm/process_group.h"
#include "megatron/comm/process_group_backend.h"

namespace megatron {

/// One per rank, made by a backend (ThreadWorld::join). Outlives the groups it made, and their Work.
class World {
 public:
  virtual ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// The group among `groups` that this rank belongs to; nothing if it is in none. Members are numbered as listed.
  /// All ranks of the world call split() with the same arguments in the same order, members or not.
  /// @param name for messages and records: "tp". @param traits  of all of these groups.
  /// @throw ConfigError if a rank is not in the world or is listed twice; CommError if ranks disagree.
  std::optional<ProcessGroup> split(std::string_view name, const RankLists& groups, const GroupTraits& traits = {});

  /// Longest wait for another rank, for all groups made so far and later, and at the end. Operations in flight keep the
  /// timeout with which they began, so all ranks should synchronise before it becomes shorter.
  void set_timeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds timeout() const { return timeout_; }
  FlightRecorder& recorder() { return recorder_; }
  const FlightRecorder& recorder() const { return recorder_; }

  /// Aborts every group of every rank. Any thread, any time.
  virtual void abort(std::string_view reason) = 0;

  /// A rank keeps this many records.
  static constexpr int64_t kRecorderCapacity = 2048;

 protected:
  /// This rank is groups[group][rank]; group -1: in none.
  struct Membership {
    int group = -1, rank = -1;
  };
  World(int rank, int size, std::chrono::milliseconds timeout);

 private:
  /// Null if this rank is in no group; may be null for a group of one on the host.
  virtual std::unique_ptr<ProcessGroupBackend> do_split(std::string_view name, const RankLists& groups,
                                                        const Membership& own, const GroupTraits& traits) = 0;

  int rank_, size_;
  std::chrono::milliseconds timeout_;
  FlightRecorder recorder_{kRecorderCapacity};
  std::vector<std::unique_ptr<ProcessGroupState>> groups_;
};

}  // namespace megatron
