#include "megatron/training/profile/measured_schedule.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace megatron {
namespace {

std::optional<int> thread_of(const RankTrace& rank, std::string_view name) {
  for (const auto& [thread, thread_name] : rank.threads)
    if (thread_name == name) return thread;
  return std::nullopt;
}

/// Begin of the last step on the rank's clock.
int64_t begin_of_last_step(const RankTrace& rank) {
  int64_t begin = std::numeric_limits<int64_t>::min();
  for (const TraceEvent& event : rank.events)
    if (event.name.starts_with("step ")) begin = std::max(begin, event.begin_ns);
  return begin;
}

Action action_of(const TraceEvent& event) {
  Action action{.kind = ActionKind::kF};
  for (const auto& [name, value] : event.args) {
    if (name == "chunk") action.chunk = static_cast<int>(std::get<int64_t>(value));
    if (name == "micro-batch") action.micro_batch = static_cast<int>(std::get<int64_t>(value));
    if (name != "action") continue;
    for (ActionKind kind : {ActionKind::kF, ActionKind::kB, ActionKind::kW, ActionKind::kBW})
      if (name_of(kind) == std::get<std::string>(value)) action.kind = kind;
  }
  return action;
}

RankTimeline timeline_of(const RankTrace& rank) {
  RankTimeline line;
  const std::optional<int> thread = thread_of(rank, "schedule");
  const int64_t begin = begin_of_last_step(rank);
  double live = 0;
  for (const TraceEvent& event : rank.events) {
    if (thread != event.thread || event.begin_ns < begin) continue;
    const double start = static_cast<double>(event.begin_ns + rank.clock_offset_ns) / 1e6;
    const double length = static_cast<double>(event.duration_ns) / 1e6;
    const TimedAction& timed = line.actions.emplace_back(TimedAction{action_of(event), start, start + length});
    line.busy += length;
    if (timed.action.kind == ActionKind::kF) line.peak_activations = std::max(line.peak_activations, ++live);
    if (timed.action.kind == ActionKind::kW || timed.action.kind == ActionKind::kBW) --live;
  }
  return line;
}

}  // namespace

Simulation measured_schedule(std::span<const RankTrace> ranks) {
  Simulation schedule;
  double first = std::numeric_limits<double>::max(), last = std::numeric_limits<double>::lowest();
  for (const RankTrace& rank : ranks) {
    for (const TimedAction& timed : schedule.ranks.emplace_back(timeline_of(rank)).actions) {
      first = std::min(first, timed.start);
      last = std::max(last, timed.end);
    }
  }
  for (RankTimeline& rank : schedule.ranks)
    for (TimedAction& timed : rank.actions) {
      timed.start -= first;
      timed.end -= first;
    }
  schedule.makespan = std::max(0.0, last - first);
  return schedule;
}

}  // namespace megatron
