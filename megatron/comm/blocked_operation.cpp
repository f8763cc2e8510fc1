#include "megatron/comm/blocked_operation.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <set>

namespace megatron {

std::string explain_timeout(const BlockedOperation& blocked, std::chrono::milliseconds timeout,
                            const std::vector<BlockedOperation>& all,
                            const std::function<std::string(int rank)>& describe_rank) {
  std::string text = fmt::format("{} timed out after {} ms: {} never entered it; {} waiting.", blocked.text,
                                 timeout.count(), describe_ranks(blocked.missing), describe_ranks(blocked.waiting));
  // Follow the chain: a rank that is missing here may be waiting for a third one elsewhere. With many ranks the first
  // few are enough.
  constexpr size_t kMostExplained = 8;
  std::deque<int> to_explain(blocked.missing.begin(), blocked.missing.end());
  std::set<int> explained;
  bool has_culprit = false;
  for (; !to_explain.empty(); to_explain.pop_front()) {
    const int rank = to_explain.front();
    if (!explained.insert(rank).second) continue;
    const bool is_described = explained.size() <= kMostExplained;
    const auto own = std::find_if(all.begin(), all.end(), [&](const BlockedOperation& other) {
      return std::find(other.waiting.begin(), other.waiting.end(), rank) != other.waiting.end();
    });
    if (own == all.end()) {
      has_culprit = true;
      if (is_described) text += describe_rank(rank);
      continue;
    }
    if (is_described)
      text += fmt::format(" Rank {} waits in {} for {}.", rank, own->text, describe_ranks(own->missing));
    to_explain.insert(to_explain.end(), own->missing.begin(), own->missing.end());
  }
  if (explained.size() > kMostExplained)
    text += fmt::format(" {} more ranks are not described.", explained.size() - kMostExplained);
  if (!has_culprit) text += " These ranks wait for each other: they issue operations in different orders.";
  return text;
}

std::string explain_drop(int rank, std::string_view operation, const std::vector<int>& missing, bool is_unwinding) {
  if (is_unwinding)
    return fmt::format("rank {} failed in its own code and dropped {}: see its own error", rank, operation);
  return fmt::format("rank {} dropped {} before {} had entered it", rank, operation, describe_ranks(missing));
}

std::string describe_idle_rank(int rank, const FlightRecorder& recorder) {
  const auto last = recorder.last();
  if (!last) return fmt::format(" Rank {} waits in no operation and has issued none.", rank);
  const std::chrono::duration<double> age = std::chrono::steady_clock::now() - last->enqueued;
  return fmt::format(" Rank {} waits in no operation; its last was {}, {:.1f} s ago.", rank, last->to_string(),
                     age.count());
}

}  // namespace megatron
