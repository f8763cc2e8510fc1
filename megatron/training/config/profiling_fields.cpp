// Which steps and ranks are recorded, and the rules of that.
#include "megatron/training/config/fields.h"
#include "megatron/training/config/rules.h"

namespace megatron {

void describe_profiling(FieldTable& table, PretrainConfig& config) {
  ProfilingConfig& profiling = config.profiling;
  table.begin_group("Profiling",
                    "--profile writes what each rank did in a few steps as a picture for ui.perfetto.dev, and prints "
                    "the time by class of op. See docs/profiling.md.");
  table.add("profile", profiling.profile, "record steps, and write them to the file of --profile-trace");
  table.add("profile_step_start", profiling.profile_step_start, "steps before the first one that is recorded")
      .at_least(0);
  table.add("profile_step_end", profiling.profile_step_end, "the last step that is recorded").at_least(1);
  table.add("profile_ranks", profiling.profile_ranks, "ranks that are recorded; none given: all");
  table.add("profile_trace", profiling.profile_trace,
            "file of the trace; compressed if the name ends in .gz (megatron.cpp only)");
  table.add("nvtx_ranges", profiling.nvtx_ranges,
            "on a GPU: ranges by layer and op for Nsight; with --profile in the steps that it records, else in all");
}

void resolve_profiling(PretrainConfig& config, Mistakes& mistakes) {
  const ProfilingConfig& profiling = config.profiling;
  if (!profiling.profile) return;
  const int64_t start = profiling.profile_step_start, end = profiling.profile_step_end;
  if (start >= end)
    mistakes.add({"--profile-step-start", "--profile-step-end"},
                 "--profile-step-start {} must be less than --profile-step-end {}: steps {} to {} are recorded. Give "
                 "--profile-step-end {} for one step",
                 start, end, start + 1, end, start + 1);
  const auto& train_iters = config.training.train_iters;
  if (start < end && train_iters && start >= *train_iters)
    mistakes.add({"--profile-step-start", "--profile-step-end", "--train-iters"},
                 "--profile-step-start {} must be less than --train-iters {}: no step would be recorded. Give smaller "
                 "--profile-step-start and --profile-step-end",
                 start, *train_iters);
  const int64_t world_size = config.parallel.world_size;
  for (int64_t rank : profiling.profile_ranks)
    if (rank < 0 || rank >= world_size)
      mistakes.add({"--profile-ranks"},
                   "--profile-ranks {} must be at least 0 and less than the number of ranks, which is {}. Leave the "
                   "flag out to record all",
                   rank, world_size);
}

}  // namespace megatron
