// Reports that ranks exchange after a timeout, and the rank that blocks the others.
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

/// Position of an operation in its lane, which has the operations that the same members issue in the same order: the
/// collectives of a group, or the sends of one tag from one rank to another.
struct LanePlace {
  std::string lane;
  int64_t index = 0;
  std::vector<int> members;  // global ranks
};

/// The lanes of GpuRanks::begin_graph_step and GpuRanks::launch_graph.
inline constexpr std::string_view kGraphSteps = "graph_steps", kGraphLaunches = "graph_launches";

/// NCCL cannot report which ranks have entered an operation. The ranks can: a rank that has issued more than `index`
/// operations of a lane has entered that one.
struct RankReport {
  int rank = 0;
  std::string text;  // of the operation in which it waits; else of its last operation (describe_idle_rank)
  std::optional<LanePlace> blocked;
  std::map<std::string, int64_t> num_issued;  // by lane

  std::string serialize() const;
  /// @throw CommError if the text is not a report
  static RankReport parse(std::string_view text);
};

/// Members that have not issued it, including those without a report.
std::vector<int> missing_ranks(const LanePlace& place, const std::map<int, RankReport>& reports);

/// The text of a timeout of the operation in which rank `own` waits. @param reports of all ranks that answered
std::string explain_timeout(int own, std::chrono::milliseconds timeout, const std::map<int, RankReport>& reports);

/// The text of a failure in `step`: `rank` has a change (GpuRanks::begin_graph_step), and others do not.
std::string explain_change(std::string_view step, int rank, std::string_view change,
                           const std::vector<int>& without_change);

}  // namespace megatron
