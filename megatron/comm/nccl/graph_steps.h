// Steps of which each may be the launch of a CUDA graph that has operations of all ranks in it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "megatron/comm/nccl/rank_report.h"
#include "megatron/comm/nccl/store_meeting.h"

namespace megatron {

/// Finds steps in which some ranks alone have a change. Needs no GPU. One thread begins steps, others may ask.
class GraphSteps {
 public:
  /// @param ask  what the ranks do, of those that answer; each answers with what add_to() has added.
  GraphSteps(StoreMeeting& meeting, std::function<std::map<int, RankReport>()> ask)
      : meeting_(meeting), ask_(std::move(ask)) {}

  /// See GpuRanks::begin_graph_step. Who finds that ranks differ is one with a change: it waits for the others' and
  /// asks them how far they are.
  void begin(std::string_view site, std::string_view change, std::chrono::milliseconds timeout);
  /// How far this rank is, and in what it waits for the changes of others.
  void add_to(RankReport& report) const;

 private:
  LanePlace place(int64_t step) const;
  void note(int64_t num_begun, const std::string& waiting_in);
  void wait_for_changes(const RankReport& own, std::string_view change, std::chrono::milliseconds timeout);

  StoreMeeting& meeting_;
  std::function<std::map<int, RankReport>()> ask_;
  mutable std::mutex mutex_;  // guards what follows
  int64_t num_begun_ = 0;
  std::string waiting_in_;  // the last one begun; empty: does not wait
};

}  // namespace megatron
