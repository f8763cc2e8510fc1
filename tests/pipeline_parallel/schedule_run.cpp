#include "tests/pipeline_parallel/schedule_run.h"

#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <numeric>
#include <utility>

#include "megatron/comm/meta/meta_world.h"
#include "megatron/distributed/param_and_grad_buffer.h"
#include "megatron/pipeline_parallel/executor.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

/// One rank's part. The group must be of schedule.num_ranks.
Outcome run_rank(DeviceKind device, const World& world, const ProcessGroup& group,
                 const DeepModelOptions& model_options, const PipelineLayout& layout, const ScheduleOptions& schedule,
                 const EditSchedule& edit) {
  Outcome out;
  TestDevice test(device, 1);
  const Context ctx = test.context();
  const DeepModel model(ctx, model_options);
  ParamAndGradBuffer buffer(ctx, model.parameters(), DType::kFloat64);
  const std::vector<ToyBatch> batches = toy_batches(ctx, schedule.num_micro_batches);
  test.step.loss_seed = 1.0 / (5 * schedule.num_micro_batches);
  ExecutorOptions options{.border_payload = same_on_all_borders({DeepModel::border()}),
                          .pipeline_group = &group,
                          .stage_order = layout.placement().order()};
  for (int c = 0; c < layout.placement().num_chunks(); ++c)
    options.chunks.push_back(model.stage(layout.at({.rank = group.rank(), .chunk = c}), batches));
  buffer.begin_step();
  const Arena& arena = test.device.arena;
  out.base_bytes = arena.total().live;
  test.device.arena.clear_events();
  const int64_t first_operation = world.recorder().num_operations();
  Executor executor(ctx, options);
  executor.on_output = [&](const Payload& output, int m) {
    launch(ctx, [&](auto&) { out.losses[m] = *at(output, "loss").data<double>(); });
  };
  Schedule own = make_schedules(schedule)[static_cast<size_t>(group.rank())];
  if (edit) edit(own);
  if (schedule.forward_only)
    executor.run_forward_only(own);
  else
    executor.run(own);
  EXPECT_EQ(arena.total().live, out.base_bytes) << "the step leaves nothing";
  out.peak_bytes = arena.total().peak;
  out.events = arena.events();
  out.operations = world.recorder().since(first_operation);
  if (schedule.forward_only) return out;
  buffer.finish_step(ctx);
  for (const Chunk& chunk : options.chunks)
    for (const Segment& segment : chunk)
      for (Parameter* p : segment.parameters) out.gradients[p->name()] = values_of(p->main_grad());
  return out;
}

}  // namespace

RanksOutcome run_all(const DeepModelOptions& model, const PipelineLayout& layout, const ScheduleOptions& schedule,
                     const EditSchedule& edit) {
  RanksOutcome result;
  result.ranks.resize(static_cast<size_t>(schedule.num_ranks));
  std::mutex mutex;
  run_ranks(schedule.num_ranks, [&](RankContext& rank) {
    Outcome out = run_rank(DeviceKind::kCpu, rank.world, rank.group, model, layout, schedule, edit);
    const std::lock_guard lock(mutex);
    for (const auto& [m, loss] : out.losses) result.all.losses[m] = loss;
    for (const auto& [name, values] : out.gradients) {
      std::vector<double>& sum = result.all.gradients[name];
      sum.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
    }
    result.ranks[static_cast<size_t>(rank.rank)] = std::move(out);
  });
  return result;
}

RanksOutcome run_all(const DeepModelOptions& model, const ScheduleOptions& schedule) {
  return run_all(model, balanced_layout(model.num_layers, placement_of(schedule), {}), schedule);
}

Outcome plan_rank(int rank, const DeepModelOptions& model, const ScheduleOptions& schedule) {
  MetaWorld world(rank, schedule.num_ranks);
  std::vector<int> all(static_cast<size_t>(schedule.num_ranks));
  std::iota(all.begin(), all.end(), 0);
  return run_rank(DeviceKind::kMeta, world, world.split("world", {all}).value(), model,
                  balanced_layout(model.num_layers, placement_of(schedule), {}), schedule, {});
}

std::string describe(const ScheduleOptions& o) {
  return fmt::format("{} p {} v {} m {} group {} {}", name_of(o.kind), o.num_ranks, o.num_chunks, o.num_micro_batches,
                     o.micro_batch_group_size.value_or(o.num_ranks),
                     o.weight_gradient == WeightGradient::kSplit ? "split" : "fused");
}

std::vector<ScheduleOptions> all_schedules() {
  std::vector<ScheduleOptions> all;
  for (const auto weight : {WeightGradient::kFused, WeightGradient::kSplit}) {
    all.push_back({.kind = ScheduleKind::kGPipe, .num_ranks = 3, .num_micro_batches = 4, .weight_gradient = weight});
    for (const auto& [p, m] : {std::pair{2, 1}, {3, 2}, {3, 7}, {4, 5}})
      all.push_back({.num_ranks = p, .num_micro_batches = m, .weight_gradient = weight});
    for (const auto& [p, v, m, group] : {std::array{2, 2, 4, 2}, {2, 3, 5, 3}, {3, 2, 7, 4}, {4, 2, 4, 4}})
      all.push_back({.kind = ScheduleKind::kInterleaved,
                     .num_ranks = p,
                     .num_chunks = v,
                     .num_micro_batches = m,
                     .micro_batch_group_size = group,
                     .weight_gradient = weight});
  }
  for (const auto& [p, m] : {std::pair{2, 5}, {3, 2}, {4, 9}})
    all.push_back({.kind = ScheduleKind::kZbH1, .num_ranks = p, .num_micro_batches = m});
  for (const auto& [p, m] : {std::pair{1, 3}, {2, 2}, {2, 5}, {3, 7}, {4, 3}})
    for (const auto kind : {ScheduleKind::kZbV, ScheduleKind::kDualPipeV})
      all.push_back({.kind = kind, .num_ranks = p, .num_chunks = 2, .num_micro_batches = m});
  return all;
}

}  // namespace megatron::testing
