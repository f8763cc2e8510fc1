// Agreement of ranks on the steps that launch a CUDA graph with operations of all ranks.
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

/// Finds steps in which only some ranks have a change. Needs no GPU. One thread begins steps, others may query it.
class GraphSteps {
 public:
  /// @param ask  queries the state of the ranks; each that answers sends the additions of add_to().
  GraphSteps(StoreMeeting& meeting, std::function<std::map<int, RankReport>()> ask)
      : meeting_(meeting), ask_(std::move(ask)) {}

  /// See GpuRanks::begin_graph_step. A rank with a change finds a difference: it waits for the others' changes and
  /// queries their progress.
  void begin(std::string_view site, std::string_view change, std::chrono::milliseconds timeout);
  /// Adds this rank's progress, and the step in which it waits for the changes of others.
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
