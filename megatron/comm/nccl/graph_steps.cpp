#include "megatron/comm/nccl/graph_steps.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "megatron/comm/nccl/poll.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

/// Time before the other ranks are queried, and between queries.
constexpr milliseconds kPatience{500};

std::string change_key(int64_t step, int rank) { return fmt::format("graph_change/{}/{}", step, rank); }

}  // namespace

LanePlace GraphSteps::place(int64_t step) const {
  std::vector<int> members(static_cast<size_t>(meeting_.size()));
  std::iota(members.begin(), members.end(), 0);
  return {std::string(kGraphSteps), step, std::move(members)};
}

void GraphSteps::note(int64_t num_begun, const std::string& waiting_in) {
  const std::lock_guard lock(mutex_);
  num_begun_ = num_begun;
  waiting_in_ = waiting_in;
}

void GraphSteps::add_to(RankReport& report) const {
  const std::lock_guard lock(mutex_);
  report.num_issued[std::string(kGraphSteps)] = num_begun_;
  if (waiting_in_.empty()) return;
  report.text = waiting_in_;
  report.blocked = place(num_begun_ - 1);
}

/// The store has a change before others can see that this rank is in the step.
void GraphSteps::begin(std::string_view site, std::string_view change, milliseconds timeout) {
  meeting_.throw_if_failed();
  const int64_t step = num_begun_;
  if (change.empty()) return note(step + 1, "");
  meeting_.store().set(change_key(step, meeting_.rank()), change);
  note(step + 1, fmt::format("the change of graph step #{} \"{}\"", step, site));
  RankReport own{.rank = meeting_.rank(), .text = {}, .blocked = {}, .num_issued = {}};
  add_to(own);
  wait_for_changes(own, change, timeout);
  note(step + 1, "");
}

void GraphSteps::wait_for_changes(const RankReport& own, std::string_view change, milliseconds timeout) {
  const LanePlace& place = *own.blocked;
  const auto deadline = std::chrono::steady_clock::now() + std::min(timeout, kLongestTimeout);
  std::vector<int> others = place.members;
  const auto all_have_come = [&] {
    std::erase_if(others, [&](int other) { return meeting_.store().find(change_key(place.index, other)).has_value(); });
    return others.empty() || meeting_.has_failed();
  };
  while (!poll(all_have_come, kPatience, kLongestStorePause)) {
    std::map<int, RankReport> reports = ask_();
    if (all_have_come()) break;
    const std::vector<int> missing = missing_ranks(place, reports);
    std::vector<int> without_change = others;
    std::erase_if(without_change, [&](int other) { return std::ranges::find(missing, other) != missing.end(); });
    reports[own.rank] = own;
    if (!without_change.empty()) {
      meeting_.fail(explain_change(own.text, own.rank, change, without_change));
    } else if (std::chrono::steady_clock::now() > deadline) {
      meeting_.fail(explain_timeout(own.rank, timeout, reports));
    }
  }
  meeting_.throw_if_failed();
}

}  // namespace megatron
