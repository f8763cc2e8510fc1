#include "megatron/pipeline_parallel/communication.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "megatron/pipeline_parallel/simulator.h"

namespace megatron {
namespace {

/// The stage from which a F or B gets its data, or to which it sends its result, if that is on another rank.
std::optional<int> other_rank_stage(const StagePlacement& placement, StagePlace place, int step) {
  const int stage = placement.stage_of(place) + step;
  if (stage < 0 || stage >= placement.num_stages()) return std::nullopt;
  return placement.place_of(stage).rank == place.rank ? std::nullopt : std::optional(stage);
}

bool is_backward(ActionKind kind) { return kind == ActionKind::kB || kind == ActionKind::kBW; }

/// End times of each F and B: by direction, virtual stage and micro-batch.
using EndTimes = std::map<std::pair<bool, std::pair<int, int>>, double>;

EndTimes end_times(const Simulation& plan, const StagePlacement& placement) {
  EndTimes ends;
  for (int rank = 0; rank < placement.num_ranks(); ++rank)
    for (const TimedAction& timed : plan.ranks[static_cast<size_t>(rank)].actions) {
      const Action& a = timed.action;
      if (a.kind == ActionKind::kW) continue;
      const int stage = placement.stage_of({.rank = rank, .chunk = a.chunk});
      ends[{is_backward(a.kind), {stage, a.micro_batch}}] = timed.end;
    }
  return ends;
}

struct Receive {
  size_t position;  // before this action of the rank
  double time;      // when the data is produced
  Action action;
};

std::vector<Receive> receives_of(int rank, const RankTimeline& line, const EndTimes& ends,
                                 const StagePlacement& placement) {
  std::vector<Receive> receives;
  for (size_t i = 0; i < line.actions.size(); ++i) {
    const Action& a = line.actions[i].action;
    if (a.kind == ActionKind::kW) continue;
    const bool backward = is_backward(a.kind);
    const auto producer = other_rank_stage(placement, {.rank = rank, .chunk = a.chunk}, backward ? 1 : -1);
    if (!producer) continue;
    const double made = ends.at({backward, {*producer, a.micro_batch}});
    size_t position = i;
    while (position > 0 && line.actions[position].start >= made) --position;
    receives.push_back({position,
                        made,
                        {.kind = backward ? ActionKind::kRecvBackward : ActionKind::kRecvForward,
                         .chunk = a.chunk,
                         .micro_batch = a.micro_batch}});
  }
  std::ranges::stable_sort(receives, {}, [](const Receive& r) { return std::pair(r.position, r.time); });
  return receives;
}

}  // namespace

std::vector<Schedule> add_communication(const std::vector<Schedule>& orders, const StagePlacement& placement) {
  const Simulation plan = simulate(orders, placement, {.has_messages = false});
  const EndTimes ends = end_times(plan, placement);
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < placement.num_ranks(); ++rank) {
    const RankTimeline& line = plan.ranks[static_cast<size_t>(rank)];
    const std::vector<Receive> receives = receives_of(rank, line, ends, placement);
    auto receive = receives.begin();
    Schedule& schedule = schedules.emplace_back();
    for (size_t i = 0; i < line.actions.size(); ++i) {
      for (; receive != receives.end() && receive->position == i; ++receive) schedule.push_back(receive->action);
      const Action& a = line.actions[i].action;
      schedule.push_back(a);
      const bool backward = is_backward(a.kind);
      if (a.kind != ActionKind::kW && other_rank_stage(placement, {.rank = rank, .chunk = a.chunk}, backward ? -1 : 1))
        schedule.push_back({.kind = backward ? ActionKind::kSendBackward : ActionKind::kSendForward,
                            .chunk = a.chunk,
                            .micro_batch = a.micro_batch});
    }
  }
  return schedules;
}

}  // namespace megatron
