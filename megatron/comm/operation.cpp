#include "megatron/comm/operation.h"

#include <fmt/core.h>

#include "megatron/base/word_list.h"

namespace megatron {
namespace {

// "3", "13-127": runs of numbers that follow each other.
std::vector<std::string> ranges_of(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::string> ranges;
  for (size_t first = 0, end = 0; first < ranks.size(); first = end) {
    for (end = first + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
    ranges.push_back(end == first + 1 ? fmt::format("{}", ranks[first])
                                      : fmt::format("{}-{}", ranks[first], ranks[end - 1]));
  }
  return ranges;
}

}  // namespace

std::string_view name_of(CommOp op) {
  switch (op) {
    case CommOp::kAllReduce:
      return "all_reduce";
    case CommOp::kReduceScatter:
      return "reduce_scatter";
    case CommOp::kAllGather:
      return "all_gather";
    case CommOp::kAllToAll:
      return "all_to_all";
    case CommOp::kBroadcast:
      return "broadcast";
    case CommOp::kBarrier:
      return "barrier";
    case CommOp::kSend:
      return "send";
    case CommOp::kReceive:
      return "recv";
  }
  return "unknown";
}

std::string_view name_of(ReduceOp reduce) {
  switch (reduce) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kAverage:
      return "average";
  }
  return "unknown";
}

std::string describe(CommOp op, int64_t sequence, std::string_view site, std::string_view group) {
  return site.empty() ? fmt::format("{} #{} of {}", name_of(op), sequence, group)
                      : fmt::format("{} #{} \"{}\" of {}", name_of(op), sequence, site, group);
}

std::string describe_ranks(const std::vector<int>& ranks) {
  constexpr size_t kMostNamed = 8;
  if (ranks.size() <= kMostNamed)
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", joined(ranks, ", "));
  std::vector<std::string> ranges = ranges_of(ranks);
  const bool are_too_many = ranges.size() > kMostNamed;
  if (are_too_many) ranges.resize(kMostNamed);
  return fmt::format("{} ranks ({}{})", ranks.size(), joined(ranges, ", "), are_too_many ? ", ..." : "");
}

}  // namespace megatron
