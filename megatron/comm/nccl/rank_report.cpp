#include "megatron/comm/nccl/rank_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"

namespace megatron {
namespace {

/// One line each: text, then "blocked LANE INDEX MEMBERS...", then "issued LANE NUMBER".
constexpr std::string_view kBlocked = "blocked", kIssued = "issued";
constexpr std::string_view kInGraph = " Run without --cuda-graph-impl to find which operation of the graph hangs.";

BlockedOperation blocked_operation(const RankReport& report, const std::map<int, RankReport>& reports) {
  BlockedOperation result{report.text, {}, missing_ranks(*report.blocked, reports)};
  for (const auto& [rank, other] : reports)
    if (other.blocked && other.blocked->lane == report.blocked->lane && other.blocked->index == report.blocked->index)
      result.waiting.push_back(rank);
  return result;
}

}  // namespace

std::string RankReport::serialize() const {
  std::string line = text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::string result = fmt::format("{}\n{}\n", rank, line);
  if (blocked)
    result += fmt::format("{} {} {} {}\n", kBlocked, blocked->lane, blocked->index, joined(blocked->members, " "));
  for (const auto& [lane, number] : num_issued) result += fmt::format("{} {} {}\n", kIssued, lane, number);
  return result;
}

RankReport RankReport::parse(std::string_view text) {
  std::istringstream lines{std::string(text)};
  RankReport report;
  std::string line;
  require<CommError>(
      static_cast<bool>(lines >> report.rank) && std::getline(lines, line) && std::getline(lines, report.text),
      "[RankReport] '{}' is not a report", text);
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string kind, lane;
    int64_t number = 0;
    words >> kind >> lane >> number;
    require<CommError>(!words.fail() && (kind == kBlocked || kind == kIssued),
                       "[RankReport] '{}' is not a line of a report", line);
    if (kind == kIssued) {
      report.num_issued[lane] = number;
      continue;
    }
    report.blocked = LanePlace{lane, number, {}};
    for (int member = 0; words >> member;) report.blocked->members.push_back(member);
  }
  return report;
}

std::vector<int> missing_ranks(const LanePlace& place, const std::map<int, RankReport>& reports) {
  std::vector<int> missing;
  for (int member : place.members) {
    const auto report = reports.find(member);
    if (report == reports.end()) {
      missing.push_back(member);
      continue;
    }
    const auto issued = report->second.num_issued.find(place.lane);
    if (issued == report->second.num_issued.end() || issued->second <= place.index) missing.push_back(member);
  }
  return missing;
}

std::string explain_timeout(int own, std::chrono::milliseconds timeout, const std::map<int, RankReport>& reports) {
  const BlockedOperation blocked = blocked_operation(reports.at(own), reports);
  if (blocked.missing.empty())
    return fmt::format(
        "{} timed out after {} ms although {} have entered it; {} waiting: the link between them, or a GPU, hangs.{}",
        blocked.text, timeout.count(), describe_ranks(reports.at(own).blocked->members),
        describe_ranks(blocked.waiting), reports.at(own).blocked->lane == kGraphLaunches ? kInGraph : "");
  std::vector<BlockedOperation> all;
  for (const auto& [rank, report] : reports)
    if (report.blocked) all.push_back(blocked_operation(report, reports));
  return explain_timeout(blocked, timeout, all, [&](int rank) {
    const auto report = reports.find(rank);
    if (report != reports.end()) return report->second.text;
    return fmt::format(" Rank {} does not answer: its process hangs or is lost.", rank);
  });
}

std::string explain_change(std::string_view step, int rank, std::string_view change,
                           const std::vector<int>& without_change) {
  return fmt::format(
      "{} is on rank {} only: {}. It would run op by op, or capture a CUDA graph, where {} may launch one. The inputs "
      "of "
      "a graph must change on all ranks in the same step; leave out --cuda-graph-impl.",
      step, rank, change, describe_ranks(without_change));
}

}  // namespace megatron
