// All pipeline schedules by name: the actions of every rank in one step.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/base/mistakes.h"
#include "megatron/pipeline_parallel/action.h"
#include "megatron/pipeline_parallel/stage_placement.h"

namespace megatron {

enum class ScheduleKind { kGPipe, kOneFOneB, kInterleaved, kZbH1, kZbV, kDualPipeV };

/// The properties of a schedule besides its order of actions.
struct ScheduleTraits {
  ScheduleKind kind;
  std::string_view name;
  std::optional<int> num_chunks;  // virtual stages of a rank; none: any number
  StageOrder stage_order;
  bool splits_weight_gradient;  // it always places weight gradients itself, in the bubble
  std::string_view summary;     // a line of help
};
constexpr std::array<ScheduleTraits, 6> kSchedules = {{
    {ScheduleKind::kGPipe, "gpipe", 1, StageOrder::kLoop, false,
     "all forwards, then all backwards: keeps every micro-batch"},
    {ScheduleKind::kOneFOneB, "1f1b", 1, StageOrder::kLoop, false,
     "one forward, one backward: the bubble of gpipe, but rank r keeps P - r micro-batches"},
    {ScheduleKind::kInterleaved, "interleaved", std::nullopt, StageOrder::kLoop, false,
     "1f1b over several virtual stages of each rank: the bubble divided by them, with more sends"},
    {ScheduleKind::kZbH1, "zb-h1", 1, StageOrder::kLoop, true,
     "1f1b with B and W split: W fills two thirds of the bubble, with the memory of rank 0 on every rank"},
    {ScheduleKind::kZbV, "zb-v", 2, StageOrder::kV, true,
     "two virtual stages of each rank in a V, B and W split: no gaps if F, B and W take equal time"},
    {ScheduleKind::kDualPipeV, "dualpipe-v", 2, StageOrder::kV, true,
     "zb-v with each forward beside a backward of the other stage: DeepSeek's order, for overlap of communication"},
}};
const ScheduleTraits& traits_of(ScheduleKind kind);

constexpr auto names_of_enum(ScheduleKind) {
  std::array<std::pair<ScheduleKind, std::string_view>, kSchedules.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = {kSchedules[i].kind, kSchedules[i].name};
  return names;
}
std::string_view name_of(ScheduleKind kind);
/// "the schedule zb-v has two virtual stages on each rank", for a schedule with a fixed number.
std::string describe_chunks(ScheduleKind kind);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kOneFOneB;
  int num_ranks = 1;
  int num_chunks = 1;  ///< virtual stages of a rank: see ScheduleTraits
  int num_micro_batches = 1;
  /// Interleaved: consecutive micro-batches on one chunk; none: num_ranks, which is depth first.
  std::optional<int> micro_batch_group_size;
  /// For schedules that do not always split.
  WeightGradient weight_gradient = WeightGradient::kFused;
  bool forward_only = false;  ///< evaluation: the forwards in their order
};

/// The placement of the schedule's virtual stages: a V or Megatron's loop.
StagePlacement placement_of(const ScheduleOptions& options);

/// The flag that sets the micro-batches of a step, and its value for one.
struct MicroBatchFlag {
  std::string_view name = "--num-micro-batches";
  int64_t value = 1;
};
/// Adds mistakes, with Megatron's flags as names. Following all of their advice gives accepted options.
void check_schedule(const ScheduleOptions& options, Mistakes& mistakes, const MicroBatchFlag& micro_batch = {});

/// The actions of each rank, with sends and receives; a pure function, the same on every rank.
/// @throw ConfigError listing all mistakes.
std::vector<Schedule> make_schedules(const ScheduleOptions& options);

}  // namespace megatron
