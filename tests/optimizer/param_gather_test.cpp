// With --overlap-param-gather weights travel behind the step of the optimizer, until one is read.
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "megatron/core/copy.h"
#include "megatron/core/profiler.h"
#include "megatron/optimizer/optimizer.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

using Weights = std::vector<std::vector<double>>;

/// Holds a rank up before it steps its weights: behind the norm of the gradients, before the gather.
class StepGate final : public Profiler {
 public:
  StepGate(std::shared_future<void> opens, std::chrono::milliseconds patience)
      : opens_(std::move(opens)), patience_(patience) {}
  void begin_op(const OpPlace&, const OpNote&, const std::source_location& where) override {
    if (std::string_view(where.file_name()).ends_with("optimizer/optimizer.cpp"))
      has_opened_ = opens_.wait_for(patience_) == std::future_status::ready;
  }
  void end_op() noexcept override {}
  void begin_range(const RangeNote&) override {}
  void end_range() noexcept override {}
  bool has_opened() const { return has_opened_; }

 private:
  std::shared_future<void> opens_;
  std::chrono::milliseconds patience_;
  bool has_opened_ = false;
};

struct Outcome {
  bool returns_first = false;  // rank 0 from its step, before rank 1 has stepped its weights
  Weights first_read, at_the_end;
};

/// One step of two ranks that own half of every bucket; rank 1 waits so long for rank 0 to return.
Outcome run_step(bool overlaps, std::chrono::milliseconds patience) {
  std::promise<void> returned;
  const std::shared_future<void> opens = returned.get_future().share();
  Outcome outcome;
  run_ranks(2, [&](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    const Context ctx = test.context();
    const auto groups = ProcessGroupCollection::make(rank.world, ParallelLayout({.world_size = 2}));
    std::vector<std::unique_ptr<Parameter>> own;
    std::vector<Parameter*> parameters;
    for (const int64_t size : {300, 7, 129}) {
      own.push_back(std::make_unique<Parameter>(
          ctx, ParameterOptions{.name = fmt::format("of {}", size), .shard = ShardSpec::whole({size})}));
      fill_uniform(ctx, own.back()->value(), own.back()->name());
      parameters.push_back(own.back().get());
    }
    DistributedDataParallel ddp(ctx, {parameters}, groups, {.use_distributed_optimizer = true, .bucket_size = 64});
    OptimizerConfig config;
    config.use_distributed_optimizer = true;
    config.overlap_param_gather = overlaps;
    Optimizer optimizer(ctx, config, ddp);
    ParamSchedulerConfig rates;
    rates.max_lr = 1e-2;
    rates.lr_decay_steps = 10;
    optimizer.begin_step(ctx, ParamScheduler(rates), 1.0, ctx.step);
    ddp.begin_step();
    for (Parameter* parameter : parameters) {
      parameter->grad_target(ctx);
      fill_uniform(ctx, parameter->main_grad(), "gradient");
      parameter->finish(ctx);
    }
    ddp.finish_grad_sync();
    StepGate gate(opens, patience);
    if (rank.rank == 1) test.device.profiler = &gate;
    Readback readback;
    optimizer.step(ctx, readback);
    const auto read = [&] {
      Weights weights;
      for (const Parameter* parameter : parameters) weights.push_back(values_of(parameter->value()));
      return weights;
    };
    if (rank.rank == 1) outcome.returns_first = gate.has_opened();
    if (rank.rank == 0) {
      returned.set_value();
      outcome.first_read = read();
    }
    ddp.finish_param_sync();
    if (rank.rank == 0) outcome.at_the_end = read();
  });
  return outcome;
}

TEST(Optimizer, AStepThatWasNotBegunIsAnError) {
  testing::TestDevice test(DeviceKind::kCpu, 1);
  const Context ctx = test.context();
  const ProcessGroupCollection groups = ProcessGroupCollection::single();
  DistributedDataParallel ddp(ctx, {std::vector<Parameter*>()}, groups, {});
  Optimizer optimizer(ctx, {}, ddp);
  Readback readback;
  EXPECT_THROW(optimizer.step(ctx, readback), InternalError);
  ParamSchedulerConfig rates;
  rates.lr_decay_steps = 10;
  optimizer.begin_step(ctx, ParamScheduler(rates), 0.25, ctx.step);
  EXPECT_EQ(ctx.step.loss_seed, 0.25);
  EXPECT_TRUE(optimizer.step(ctx, readback).success);
  EXPECT_THROW(optimizer.step(ctx, readback), InternalError);
}

TEST(ParamGather, IsWaitedForAtTheFirstReadAndNotBefore) {
  const Outcome late = run_step(false, std::chrono::milliseconds(100)),
                overlapped = run_step(true, std::chrono::seconds(20));
  EXPECT_FALSE(late.returns_first) << "without overlap a step ends with all weights";
  EXPECT_TRUE(overlapped.returns_first);
  EXPECT_EQ(overlapped.first_read, late.at_the_end) << "a read waits for the other rank's half";
  EXPECT_EQ(overlapped.at_the_end, late.at_the_end);
}

/// A gather that a graph of the step has to hide begins within the step.
TEST(ParamGather, IsLeftToTheNextStepOrToWhoReadsBeforeIt) {
  run_ranks(2, [](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    const Context ctx = test.context();
    const auto groups = ProcessGroupCollection::make(rank.world, ParallelLayout({.world_size = 2}));
    Parameter weight(ctx, {.name = "weight", .shard = ShardSpec::whole({1000})});
    fill_uniform(ctx, weight.value(), "weight");
    DistributedDataParallel ddp(ctx, {{&weight}}, groups,
                                {.use_distributed_optimizer = true, .gather_params_in_step = true});
    const FlatRange own = ddp.owned_ranges().at(0);
    const auto change_own_half = [&](float value) {
      Tensor half = own.of(weight.value());
      const std::vector<float> values(static_cast<size_t>(own.end - own.begin), value);
      write_values(test.device, std::span<const float>(values), half);
      ddp.start_param_sync();
    };
    const auto expect_all = [&](double value) {
      EXPECT_EQ(values_of(std::as_const(weight).value()), std::vector<double>(1000, value));
    };
    const FlightRecorder& recorder = rank.world.recorder();
    const int64_t num_before = recorder.num_operations();
    change_own_half(3);
    EXPECT_EQ(recorder.num_operations(), num_before);
    expect_all(3);
    EXPECT_EQ(recorder.num_operations(), num_before + 1);
    change_own_half(5);
    ddp.settle_param_sync();
    EXPECT_EQ(recorder.num_operations(), num_before + 1);
    ddp.begin_step();
    EXPECT_EQ(recorder.num_operations(), num_before + 2);
    expect_all(5);
    ddp.settle_param_sync();
    ddp.begin_step();
    EXPECT_EQ(recorder.num_operations(), num_before + 3) << "a graph gathers in every launch";
  });
}

/// One rank reads its weights, as at the end of a run, and the others have nothing left to do.
TEST(ParamGather, OfARankThatReadsAfterTheLastStepHasThePartsOfThoseThatEnd) {
  for (const bool in_step : {false, true})
    run_ranks(2, [&](RankContext& rank) {
      TestDevice test(DeviceKind::kCpu, 1);
      const Context ctx = test.context();
      const auto groups = ProcessGroupCollection::make(rank.world, ParallelLayout({.world_size = 2}));
      Parameter weight(ctx, {.name = "weight", .shard = ShardSpec::whole({1000})});
      fill_uniform(ctx, weight.value(), "weight");
      DistributedDataParallel ddp(ctx, {{&weight}}, groups,
                                  {.use_distributed_optimizer = true, .gather_params_in_step = in_step});
      const FlatRange own = ddp.owned_ranges().at(0);
      Tensor half = own.of(weight.value());
      write_values(test.device, std::span<const float>(std::vector<float>(static_cast<size_t>(own.end - own.begin), 3)),
                   half);
      ddp.start_param_sync();
      if (rank.rank == 1) return;
      EXPECT_EQ(values_of(std::as_const(weight).value()), std::vector<double>(1000, 3));
    });
}

}  // namespace
}  // namespace megatron::testing
