// Describes the settings of profiles, and their rules.
#include "megatron/training/config/fields.h"
#include "megatron/training/config/rules.h"

namespace megatron {

void describe_profiling(FieldTable& table, PretrainConfig& config) {
  ProfilingConfig& profiling = config.profiling;
  table
      .begin_group("Profiling",
                   "--profile writes what each rank did in a few steps as a picture for ui.perfetto.dev, and prints "
                   "the time by class of op. See docs/profiling.md.")
      .for_whole_runs();
  table.add("profile", profiling.profile, "record steps, and write them to the file of --profile-trace")
      .differs({.megatron = "switches a tool on and off (nsys, PyTorch's profiler), which must be there",
                .ours = "needs no tool: writes one trace of all ranks to the file of --profile-trace and prints the "
                        "time by class of op",
                .in_force = [&config] { return config.profiling.profile; }});
  table.add("profile_step_start", profiling.profile_step_start, "steps before the first one that is recorded")
      .at_least(0)
      .needs("--profile", [&config] { return config.profiling.profile; })
      .differs({.megatron = "accepts steps and ranks that never come",
                .ours = "rejected where nothing would be recorded",
                .topic = "--profile-step-start, --profile-step-end, --profile-ranks"})
      .such_as("--profile --profile-step-start 5 --profile-step-end 8");
  table.add("profile_step_end", profiling.profile_step_end, "the last step that is recorded")
      .at_least(1)
      .needs("--profile", [&config] { return config.profiling.profile; })
      .such_as("--profile --profile-step-start 5 --profile-step-end 8");
  table.add("profile_ranks", profiling.profile_ranks, "ranks that are recorded; none given: all")
      .needs("--profile or --nvtx-ranges",
             [&config] { return config.profiling.profile || config.profiling.nvtx_ranges; })
      .such_as("--profile --profile-ranks 0");
  table
      .add("profile_trace", profiling.profile_trace,
           "file of the trace; compressed if the name ends in .gz (megatron.cpp only)")
      .differs_between_hosts()
      .needs("--profile", [&config] { return config.profiling.profile; })
      .such_as("--profile --profile-trace trace.json.gz");
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
