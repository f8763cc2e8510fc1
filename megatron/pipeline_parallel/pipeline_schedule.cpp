#include "megatron/pipeline_parallel/pipeline_schedule.h"

#include "megatron/pipeline_parallel/communication.h"
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
  }
  return {};
}

void check_groups(const ScheduleOptions& options, Mistakes& mistakes) {
  const int p = options.num_ranks, m = options.num_micro_batches, group = group_size(options);
  if (group < p)
    mistakes.add({kGroup, kRanks}, "{} {} is below {} {}: a chunk would wait for the chunk before it. Give {} or more",
                 kGroup, group, kRanks, p, p);
  const int left_over = group > 0 ? m % group : 0;
  if (group >= p && left_over > 0 && left_over < p)
    mistakes.add({kGroup, kRanks, "--global-batch-size"},
                 "{} micro-batches in groups of {} leave {} over, fewer than {} {}: the last group could not fill the "
                 "pipeline. Choose a multiple of {}, or another group size",
                 m, group, left_over, kRanks, p, group);
}

}  // namespace

std::string_view name_of(ScheduleKind kind) {
  for (const auto& [enumerator, name] : names_of_enum(kind))
    if (enumerator == kind) return name;
  return {};
}

StagePlacement placement_of(const ScheduleOptions& options) {
  return {options.num_ranks, options.num_chunks,
          options.kind == ScheduleKind::kZbV ? StageOrder::kV : StageOrder::kLoop};
}

void check_schedule(const ScheduleOptions& options, Mistakes& mistakes) {
  if (options.num_ranks < 1) mistakes.add({kRanks}, "{} {}: give at least 1", kRanks, options.num_ranks);
  if (options.num_chunks < 1) mistakes.add({kChunks}, "{} {}: give at least 1", kChunks, options.num_chunks);
  if (options.num_micro_batches < 1)
    mistakes.add({"--global-batch-size"}, "{} micro-batches: a step has at least one", options.num_micro_batches);
  const bool is_v = options.kind == ScheduleKind::kZbV, is_interleaved = options.kind == ScheduleKind::kInterleaved;
  const int wanted = is_v ? 2 : 1;
  if (!is_interleaved && options.num_chunks >= 1 && options.num_chunks != wanted)
    mistakes.add({kChunks}, "{} {}: the schedule {} has {} on each rank", kChunks, options.num_chunks,
                 name_of(options.kind), is_v ? "two virtual stages" : "one stage");
  if (!is_interleaved && options.micro_batch_group_size)
    mistakes.add({kGroup}, "{} {} is for the schedule interleaved, not for {}", kGroup, *options.micro_batch_group_size,
                 name_of(options.kind));
  if (is_interleaved && !options.forward_only && options.num_ranks >= 1 && options.num_micro_batches >= 1)
    check_groups(options, mistakes);
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
