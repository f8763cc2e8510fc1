// Runs schedules of the deep model on ranks as threads, and on single ranks of the meta device.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megatron/comm/flight_recorder.h"
#include "megatron/comm/world.h"
#include "megatron/core/arena.h"
#include "megatron/pipeline_parallel/pipeline_schedule.h"
#include "tests/pipeline_parallel/deep_model.h"

namespace megatron::testing {

struct Outcome {
  std::map<int, double> losses;                          // by micro-batch; none on meta
  std::map<std::string, std::vector<double>> gradients;  // of the parameters that the rank's chunks use
  int64_t peak_bytes = 0, base_bytes = 0;                // of the step, and before it
  std::vector<Arena::Event> events;                      // of the step
  std::vector<OperationRecord> operations;
};

/// Changes the schedule of a rank before it runs.
using EditSchedule = std::function<void(Schedule&)>;

struct RanksOutcome {
  Outcome all;  // losses, and the sum of the ranks' gradients of a parameter
  std::vector<Outcome> ranks;
};
RanksOutcome run_all(const DeepModelOptions& model, const PipelineLayout& layout, const ScheduleOptions& schedule,
                     const EditSchedule& edit = {});
/// With balanced layers.
RanksOutcome run_all(const DeepModelOptions& model, const ScheduleOptions& schedule);

/// The plan of run_all's rank `rank` on the meta device.
Outcome plan_rank(int rank, const DeepModelOptions& model, const ScheduleOptions& schedule);

std::string describe(const ScheduleOptions& options);
/// Sizes that do not divide wherever the schedule admits them.
std::vector<ScheduleOptions> all_schedules();

}  // namespace megatron::testing
