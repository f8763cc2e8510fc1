// What ranks tell each other when one has waited too long, and who of them holds up the others.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/blocked_operation.h"

namespace megatron {

/// Place of an operation in its lane: those operations of the same members that all of them issue in one order, the
/// collectives of a group, or the messages of one tag from one rank to another.
struct LanePlace {
  std::string lane;
  int64_t index = 0;
  std::vector<int> members;  // global ranks
};

/// The lanes of GpuRanks::begin_graph_step and GpuRanks::launch_graph.
inline constexpr std::string_view kGraphSteps = "graph_steps", kGraphLaunches = "graph_launches";

/// NCCL cannot say who has entered an operation. The ranks can: whoever has issued more than `index` operations of a
/// lane has entered that one.
struct RankReport {
  int rank = 0;
  std::string text;  // of the operation that it waits in; else of what it did last (describe_idle_rank)
  std::optional<LanePlace> blocked;
  std::map<std::string, int64_t> num_issued;  // by lane

  std::string serialize() const;
  /// @throw CommError if that is no report
  static RankReport parse(std::string_view text);
};

/// Members that have not issued it, those without a report among them.
std::vector<int> missing_ranks(const LanePlace& place, const std::map<int, RankReport>& reports);

/// The text of a timeout of what rank `own` waits in. @param reports of the ranks that answered, `own` among them
std::string explain_timeout(int own, std::chrono::milliseconds timeout, const std::map<int, RankReport>& reports);

/// The text of a failure in `step`: `rank` finds a change (GpuRanks::begin_graph_step), and others do not.
std::string explain_change(std::string_view step, int rank, std::string_view change,
                           const std::vector<int>& without_change);

}  // namespace megatron
