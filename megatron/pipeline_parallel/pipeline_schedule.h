// All pipeline schedules by name: what every rank does in one step.
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

enum class ScheduleKind { kGPipe, kOneFOneB, kInterleaved, kZbH1, kZbV };
constexpr std::array<std::pair<ScheduleKind, std::string_view>, 5> names_of_enum(ScheduleKind) {
  return {{{ScheduleKind::kGPipe, "gpipe"},
           {ScheduleKind::kOneFOneB, "1f1b"},
           {ScheduleKind::kInterleaved, "interleaved"},
           {ScheduleKind::kZbH1, "zb-h1"},
           {ScheduleKind::kZbV, "zb-v"}}};
}
std::string_view name_of(ScheduleKind kind);
/// Virtual stages of a rank, where the schedule has the same number always: 2 of ZB-V, 1 of others but interleaved.
std::optional<int> chunks_of(ScheduleKind kind);
/// "the schedule zb-v has two virtual stages on each rank": of one whose number is always the same.
std::string describe_chunks(ScheduleKind kind);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kOneFOneB;
  int num_ranks = 1;
  int num_chunks = 1;  ///< virtual stages of a rank: see chunks_of
  int num_micro_batches = 1;
  /// Interleaved: micro-batches in a row on one chunk; none: num_ranks, which is depth first.
  std::optional<int> micro_batch_group_size;
  /// The zero-bubble schedules always split.
  WeightGradient weight_gradient = WeightGradient::kFused;
  bool forward_only = false;  ///< evaluation: the forwards in their order
};

/// Where the schedule has the virtual stages: a V for ZB-V, else Megatron's loop.
StagePlacement placement_of(const ScheduleOptions& options);

/// The flag that sets the micro-batches of a step, and its value for one.
struct MicroBatchFlag {
  std::string_view name = "--num-micro-batches";
  int64_t value = 1;
};
/// Adds what cannot be, with Megatron's flags as names. What the mistakes advise is accepted once all of it is done.
void check_schedule(const ScheduleOptions& options, Mistakes& mistakes, const MicroBatchFlag& micro_batch = {});

/// What each rank does, sends and receives among it; a pure function, the same on every rank.
/// @throw ConfigError listing all mistakes.
std::vector<Schedule> make_schedules(const ScheduleOptions& options);

}  // namespace megatron
