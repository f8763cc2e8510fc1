#include "megatron/comm/operation.h"

#include <fmt/core.h>

#include "megatron/base/word_list.h"

namespace megatron {

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
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", joined(ranks, ", "));
}

}  // namespace megatron
