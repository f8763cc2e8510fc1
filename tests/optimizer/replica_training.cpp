#include "tests/optimizer/replica_training.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "megatron/core/copy.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/ops/move_rows.h"
#include "megatron/pipeline_parallel/executor.h"
#include "megatron/pipeline_parallel/schedules/one_f_one_b.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/recorded_operations.h"
#include "tests/testing/toy_model.h"

namespace megatron::testing {
namespace {

constexpr double kTokensOfMicroBatch = 5;

ParamScheduler make_scheduler() {
  ParamSchedulerConfig config;
  config.max_lr = 1e-2;
  config.lr_decay_steps = 1000;
  config.start_wd = config.end_wd = 0.1;
  return ParamScheduler(config);
}

void overflow(const Context& ctx, const ToyModel& model) {
  for (Parameter* parameter : model.parameters()) {
    if (parameter->name() != "norm1") continue;
    Tensor element = parameter->main_grad().slice(0, 2, 1);
    launch(ctx, [&](auto& stream) {
      kernels::fill(stream, {.y = element.view(), .value = std::numeric_limits<double>::infinity()});
    });
  }
}

void record_states(const Optimizer& optimizer, ReplicaOutcome& out) {
  for (const OptimizerState& state : optimizer.states()) {
    const auto record = [&](const char* name, const Tensor& tensor) {
      if (!tensor.defined()) return;
      EXPECT_EQ(tensor.num_elements(), state.end - state.begin);
      out.states[std::string(name) + " of " + state.parameter->name()][state.begin] = values_of(tensor);
    };
    record("main", state.main);
    record("exp_avg", state.exp_avg);
    record("exp_avg_sq", state.exp_avg_sq);
    out.state_elements += state.end - state.begin;
  }
}

/// Gathers three rows into a tensor that has room for two.
void overflow_extent(const Context& ctx) {
  IndexList index{ctx.empty("rows", {2}, DType::kInt32),
                  Storage(ctx.device.arena, "count", 4, MemoryUse::kActivations)};
  write_values<int32_t>(ctx.device, std::array{0, 0}, index.rows);
  write_value(ctx.device, int32_t{3}, reinterpret_cast<int32_t*>(index.count.data()));
  Context forward = ctx;
  gather_rows(forward, ctx.empty("x", {4, 2}, DType::kFloat32), index);
}

/// 1 / tokens that the loss of a replica's micro-batches is averaged over.
double loss_weight(const ReplicaTraining& training) {
  const int num_own = training.num_micro_batches / training.replicas;
  return 1 / (kTokensOfMicroBatch * (training.ddp.calculate_per_token_loss ? training.num_micro_batches : num_own));
}

/// One step over the micro-batches of this replica; the loss is this rank's part of that of the global batch.
double run_step(const ReplicaTraining& training, int rank, const Context& ctx, const ToyModel& model,
                const std::vector<ToyBatch>& batches) {
  const int num_own = training.num_micro_batches / training.replicas;
  const double weight = loss_weight(training);
  std::vector<ToyBatch> own;
  for (int m = 0; m < num_own; ++m) own.push_back(batches[static_cast<size_t>(m * training.replicas + rank)]);
  const ExecutorOptions options{.chunks = {model.segments(own)}};
  double loss = 0;
  Executor executor(ctx, options);
  executor.on_output = [&](const Payload& output, int) {
    launch(ctx, [&](auto&) { loss += *at(output, "loss").data<double>() * weight; });
  };
  executor.run(one_f_one_b(0, 1, num_own, WeightGradient::kFused));
  return loss;
}

}  // namespace

ReplicaOutcome train_replica(const ReplicaTraining& training, World& world, DeviceKind device) {
  ReplicaOutcome out;
  TestDevice test(device, 1);
  {
    const Context ctx = test.context();
    const int instances = static_cast<int>(training.ddp.num_distributed_optimizer_instances);
    const ProcessGroupCollection groups = ProcessGroupCollection::make(
        world, ParallelLayout({.world_size = training.replicas, .num_distributed_optimizer_instances = instances}));
    ToyModel model(ctx, groups.tp, {.dtype = training.dtype, .recompute = training.recompute});
    DistributedDataParallel ddp(ctx, {model.parameters()}, groups, training.ddp);
    OptimizerConfig config = training.optimizer;
    config.params_dtype = training.dtype;
    config.use_distributed_optimizer = training.ddp.use_distributed_optimizer;
    Optimizer optimizer(ctx, config, ddp);
    model.initialize(ctx);
    optimizer.reload_main_params(ctx);
    ParamScheduler scheduler = make_scheduler();
    const std::vector<ToyBatch> batches = toy_batches(ctx, training.num_micro_batches);
    const int64_t first = world.recorder().num_operations();
    for (int step = 0; step < training.num_steps; ++step) {
      ctx.step = {.step = step};
      optimizer.begin_step(ctx, scheduler, optimizer.loss_scale() * loss_weight(training), ctx.step);
      ddp.begin_step();
      out.losses.push_back(run_step(training, world.rank(), ctx, model, batches));
      if (step == training.overflow_step && world.rank() == training.overflow_rank) {
        if (training.extent_overflows)
          overflow_extent(ctx);
        else
          overflow(ctx, model);
      }
      ddp.finish_grad_sync();
      Readback readback;
      out.results.push_back(optimizer.step(ctx, readback));
      if (out.results.back().success) scheduler.step(training.num_micro_batches);
    }
    out.params_norm = optimizer.params_norm(ctx);
    out.loss_scale = optimizer.loss_scale();
    ddp.finish_param_sync();
    for (const Parameter* parameter : model.parameters())
      out.weights[parameter->name()] = values_of(parameter->value());
    record_states(optimizer, out);
    out.calls = operation_lines_since(world.recorder(), first);
  }
  out.events = test.device.arena.events();
  out.live_bytes = test.device.arena.total().live;
  return out;
}

std::vector<ReplicaOutcome> train_replicas(const ReplicaTraining& training) {
  std::vector<ReplicaOutcome> outcomes(static_cast<size_t>(training.replicas));
  run_ranks(training.replicas, [&](RankContext& rank) {
    outcomes[static_cast<size_t>(rank.rank)] = train_replica(training, rank.world, DeviceKind::kCpu);
  });
  return outcomes;
}

std::map<std::string, std::vector<double>> join_states(const std::vector<ReplicaOutcome>& ranks, size_t first,
                                                       size_t num) {
  std::map<std::string, std::map<int64_t, std::vector<double>>> parts;
  for (size_t rank = first; rank < first + num; ++rank)
    for (const auto& [name, ranges] : ranks[rank].states) parts[name].insert(ranges.begin(), ranges.end());
  std::map<std::string, std::vector<double>> whole;
  for (const auto& [name, ranges] : parts)
    for (const auto& [begin, values] : ranges) {
      EXPECT_EQ(static_cast<int64_t>(whole[name].size()), begin) << name << ": ranges leave no gap";
      whole[name].insert(whole[name].end(), values.begin(), values.end());
    }
  return whole;
}

}  // namespace megatron::testing
