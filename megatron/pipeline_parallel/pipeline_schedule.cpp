#include "megatron/pipeline_parallel/pipeline_schedule.h"

#include <algorithm>

#include "megatron/pipeline_parallel/communication.h"
#include "megatron/pipeline_parallel/schedules/dual_pipe_v.h"
#include "megatron/pipeline_parallel/schedules/gpipe.h"
#include "megatron/pipeline_parallel/schedules/interleaved.h"
#include "megatron/pipeline_parallel/schedules/one_f_one_b.h"
#include "megatron/pipeline_parallel/schedules/zero_bubble.h"

namespace megatron {
namespace {

constexpr const char* kRanks = "--pipeline-model-parallel-size";
constexpr const char* kChunks = "--num-virtual-stages-per-pipeline-rank";
constexpr const char* kGroup = "--microbatch-group-size-per-virtual-pipeline-stage";

int group_size(const ScheduleOptions& options) { return options.micro_batch_group_size.value_or(options.num_ranks); }

Schedule order_of(const ScheduleOptions& options, int rank) {
  const int p = options.num_ranks, m = options.num_micro_batches;
  switch (options.kind) {
    case ScheduleKind::kGPipe:
      return gpipe(m, options.weight_gradient);
    case ScheduleKind::kOneFOneB:
      return one_f_one_b(rank, p, m, options.weight_gradient);
    case ScheduleKind::kInterleaved:
      return interleaved({.num_ranks = p,
                          .num_chunks = options.num_chunks,
                          .num_micro_batches = m,
                          .micro_batch_group_size = group_size(options),
                          .weight_gradient = options.weight_gradient},
                         rank);
    case ScheduleKind::kZbH1:
      return zb_h1(rank, p, m);
    case ScheduleKind::kZbV:
      return zb_v(rank, p, m);
    case ScheduleKind::kDualPipeV:
      return dual_pipe_v(rank, p, m);
  }
  return {};
}

bool fills_pipeline(int num_micro_batches, int group, int num_ranks) {
  const int left_over = num_micro_batches % group;
  return left_over == 0 || left_over >= num_ranks;
}

/// Flags with which the groups of `wanted` micro-batches, or others of as many, fill the pipeline.
std::string advice_on_groups(const ScheduleOptions& options, int wanted, const MicroBatchFlag& micro_batch) {
  const int p = options.num_ranks, m = options.num_micro_batches;
  std::string more = fmt::format("give {} {}", micro_batch.name, (m / wanted + 1) * wanted * micro_batch.value);
  for (int group = p; group <= m; ++group)
    if (fills_pipeline(m, group, p)) return fmt::format("{}, or give {} {}", more, kGroup, group);
  return more;
}

void check_groups(const ScheduleOptions& options, Mistakes& mistakes, const MicroBatchFlag& micro_batch) {
  const int p = options.num_ranks, m = options.num_micro_batches, group = std::max(group_size(options), p);
  if (group_size(options) < p)
    mistakes.add({kGroup, kRanks}, "{} {} is below {} {}: a chunk would wait for the chunk before it. Give {} {}",
                 kGroup, group_size(options), kRanks, p, kGroup, p);
  if (options.micro_batch_group_size && group > m && m >= p)
    mistakes.add({kGroup, "--global-batch-size"},
                 "{} {} is above the {} micro-batches of a step: there is no such group. Give {} {}, or give {} {}",
                 kGroup, group, m, micro_batch.name, group * micro_batch.value, kGroup, m);
  if (!fills_pipeline(m, group, p))
    mistakes.add({kGroup, kRanks, "--global-batch-size"},
                 "{} micro-batches in groups of {} leave {} over, fewer than {} {}: the last group could not fill the "
                 "pipeline; {}",
                 m, group, m % group, kRanks, p, advice_on_groups(options, group, micro_batch));
}

}  // namespace

const ScheduleTraits& traits_of(ScheduleKind kind) {
  return *std::ranges::find(kSchedules, kind, &ScheduleTraits::kind);
}

std::string_view name_of(ScheduleKind kind) { return traits_of(kind).name; }

std::string describe_chunks(ScheduleKind kind) {
  return fmt::format("the schedule {} has {} on each rank", name_of(kind),
                     traits_of(kind).num_chunks == 1 ? "one stage" : "two virtual stages");
}

StagePlacement placement_of(const ScheduleOptions& options) {
  return {options.num_ranks, options.num_chunks, traits_of(options.kind).stage_order};
}

void check_schedule(const ScheduleOptions& options, Mistakes& mistakes, const MicroBatchFlag& micro_batch) {
  if (options.num_ranks < 1) mistakes.add({kRanks}, "{} {}: give at least 1", kRanks, options.num_ranks);
  if (options.num_chunks < 1) mistakes.add({kChunks}, "{} {}: give at least 1", kChunks, options.num_chunks);
  if (options.num_micro_batches < 1)
    mistakes.add({"--global-batch-size"}, "{} micro-batches: a step has at least one", options.num_micro_batches);
  const bool is_interleaved = options.kind == ScheduleKind::kInterleaved;
  const std::optional<int> wanted = traits_of(options.kind).num_chunks;
  if (wanted && options.num_chunks >= 1 && options.num_chunks != *wanted)
    mistakes.add({kChunks}, "{} {}: {}. Leave out {}", kChunks, options.num_chunks, describe_chunks(options.kind),
                 kChunks);
  if (!is_interleaved && options.micro_batch_group_size)
    mistakes.add({kGroup}, "{} {} is for the schedule interleaved, not for {}: leave out {}", kGroup,
                 *options.micro_batch_group_size, name_of(options.kind), kGroup);
  if (is_interleaved && !options.forward_only && options.num_ranks >= 1 && options.num_micro_batches >= 1)
    check_groups(options, mistakes, micro_batch);
}

std::vector<Schedule> make_schedules(const ScheduleOptions& options) {
  Mistakes mistakes;
  check_schedule(options, mistakes);
  mistakes.throw_if_any("the pipeline schedule cannot be made");
  std::vector<Schedule> orders;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    orders.push_back(order_of(options, rank));
    if (options.forward_only) std::erase_if(orders.back(), [](const Action& a) { return a.kind != ActionKind::kF; });
  }
  return add_communication(orders, placement_of(options));
}

}  // namespace megatron
