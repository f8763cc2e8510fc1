// Simulates schedules: finds deadlocks, and computes times and live activations.
#pragma once

#include <vector>

#include "megatron/pipeline_parallel/action.h"
#include "megatron/pipeline_parallel/stage_placement.h"

namespace megatron {

/// Time of one micro-batch in one virtual stage, in any unit. BW takes backward + weight.
struct ActionCosts {
  double forward = 1;
  double backward = 1;  ///< gradient of the inputs
  double weight = 1;    ///< gradient of the weights
};

struct SimulationOptions {
  std::vector<ActionCosts> costs = {{}};  ///< one for each virtual stage, or one for all
  double send_latency = 0;                ///< from the end of the sender's action until the receiver has the data
  /// Fraction of the activations of a chunk that stays from B to W. 1: all.
  double kept_for_weight = 1;
  /// true: schedules send and receive. false: they only compute, and inputs are ready when their producer ends.
  bool has_messages = true;
};

/// A F, B, W or BW and its times.
struct TimedAction {
  Action action;
  double start = 0, end = 0;
};

struct RankTimeline {
  std::vector<TimedAction> actions;
  double busy = 0;              ///< sum of the actions' times
  double peak_activations = 0;  ///< most chunks whose forward has begun and whose backward has not ended, W included
};

struct Simulation {
  std::vector<RankTimeline> ranks;
  double makespan = 0;
  /// Idle time of a rank from the start of the step to its end.
  double bubble(int rank) const { return makespan - ranks[static_cast<size_t>(rank)].busy; }
  /// Idle part of all ranks' time, 0 to 1.
  double bubble_fraction() const;
};

/// @param schedules  of all ranks, whole chunks only.
/// @throw InternalError naming ranks and actions: if the ranks wait for each other; if an action comes before what it
/// needs from its own rank; if sends and receives of a border have different orders, or one is missing; if a
/// forward has no backward while others have, or a B no W.
Simulation simulate(const std::vector<Schedule>& schedules, const StagePlacement& placement,
                    const SimulationOptions& options);

}  // namespace megatron
