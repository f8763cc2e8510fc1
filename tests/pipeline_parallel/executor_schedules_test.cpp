// Every schedule on ranks as threads against one rank: the same bits, and the memory that the simulator says.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "megatron/distributed/param_and_grad_buffer.h"
#include "megatron/pipeline_parallel/executor.h"
#include "megatron/pipeline_parallel/layout_string.h"
#include "megatron/pipeline_parallel/pipeline_schedule.h"
#include "megatron/pipeline_parallel/simulator.h"
#include "tests/pipeline_parallel/deep_model.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

struct Outcome {
  std::map<int, double> losses;                          // by micro-batch
  std::map<std::string, std::vector<double>> gradients;  // of the parameters that the rank's chunks use
  int64_t peak_bytes = 0, base_bytes = 0, live_bytes = 0;
};

Outcome run_rank(const ProcessGroup& group, const DeepModelOptions& model_options, const PipelineLayout& layout,
                 const ScheduleOptions& schedule) {
  Outcome out;
  TestDevice test(DeviceKind::kCpu, 1);
  {
    const Context ctx = test.context();
    const DeepModel model(ctx, model_options);
    ParamAndGradBuffer buffer(ctx, model.parameters(), DType::kFloat64);
    const std::vector<ToyBatch> batches = toy_batches(ctx, schedule.num_micro_batches);
    test.step.loss_seed = 1.0 / (5 * schedule.num_micro_batches);
    ExecutorOptions options{
        .border_payload = {DeepModel::border()}, .pipeline_group = &group, .stage_order = layout.placement().order()};
    for (int c = 0; c < layout.placement().num_chunks(); ++c)
      options.chunks.push_back(model.stage(layout.at({.rank = group.rank(), .chunk = c}), batches));
    buffer.begin_step();
    out.base_bytes = test.device.arena.total().live;
    Executor executor(ctx, options);
    executor.on_output = [&](const Payload& output, int m) { out.losses[m] = *at(output, "loss").data<double>(); };
    const Schedule own = make_schedules(schedule)[static_cast<size_t>(group.rank())];
    if (schedule.forward_only) {
      executor.run_forward_only(own);
    } else {
      executor.run(own);
      out.peak_bytes = test.device.arena.total().peak;
      buffer.finish_step(ctx);
      for (const Chunk& chunk : options.chunks)
        for (const Segment& segment : chunk)
          for (Parameter* p : segment.parameters) out.gradients[p->name()] = values_of(p->main_grad());
    }
    EXPECT_EQ(test.device.arena.total().live, out.base_bytes) << "the step leaves nothing";
  }
  out.live_bytes = test.device.arena.total().live;
  return out;
}

struct RanksOutcome {
  Outcome all;  // losses, and the sum of the ranks' gradients of a parameter
  std::vector<Outcome> ranks;
};

RanksOutcome run_all(const DeepModelOptions& model, const PipelineLayout& layout, const ScheduleOptions& schedule) {
  RanksOutcome result;
  result.ranks.resize(static_cast<size_t>(schedule.num_ranks));
  std::mutex mutex;
  run_ranks(schedule.num_ranks, [&](RankContext& rank) {
    Outcome out = run_rank(rank.group, model, layout, schedule);
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

/// The same work on one rank.
Outcome run_one(const DeepModelOptions& model, int num_micro_batches) {
  return run_all(model, {.num_micro_batches = num_micro_batches}).all;
}

std::string describe(const ScheduleOptions& o) {
  return fmt::format("{} p {} v {} m {} group {} {}", name_of(o.kind), o.num_ranks, o.num_chunks, o.num_micro_batches,
                     o.micro_batch_group_size.value_or(o.num_ranks),
                     o.weight_gradient == WeightGradient::kSplit ? "split" : "fused");
}

/// Sizes that do not divide wherever the schedule admits them.
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
    all.push_back({.kind = ScheduleKind::kZbV, .num_ranks = p, .num_chunks = 2, .num_micro_batches = m});
  return all;
}

TEST(ExecutorSchedules, EveryScheduleGivesTheBitsOfOneRank) {
  for (const bool recompute : {false, true}) {
    const DeepModelOptions model{.num_layers = 7, .recompute = recompute};
    std::map<int, Outcome> one;
    for (const ScheduleOptions& schedule : all_schedules()) {
      const int m = schedule.num_micro_batches;
      if (!one.contains(m)) one[m] = run_one(model, m);
      const RanksOutcome many = run_all(model, schedule);
      EXPECT_EQ(many.all.losses, one[m].losses) << describe(schedule);
      EXPECT_EQ(many.all.gradients, one[m].gradients) << describe(schedule);
      EXPECT_EQ(one[m].losses.size(), static_cast<size_t>(m));
    }
  }
}

TEST(ExecutorSchedules, FortyThreeLayersOnThreeRanksWithTwoChunksGiveTheBitsOfOneRank) {
  const DeepModelOptions model{.num_layers = 43};
  const Outcome one = run_one(model, 6);
  for (const ScheduleOptions& schedule :
       {ScheduleOptions{.kind = ScheduleKind::kInterleaved, .num_ranks = 3, .num_chunks = 2, .num_micro_batches = 6},
        ScheduleOptions{.kind = ScheduleKind::kZbV, .num_ranks = 3, .num_chunks = 2, .num_micro_batches = 6}}) {
    const RanksOutcome many = run_all(model, schedule);
    EXPECT_EQ(many.all.losses, one.losses) << describe(schedule);
    EXPECT_EQ(many.all.gradients, one.gradients) << describe(schedule);
  }
}

TEST(ExecutorSchedules, TiedWeightsAddUpOverStagesWithinRounding) {
  const DeepModelOptions model{.num_layers = 5, .is_tied = true};
  const int m = 4;
  const Outcome one = run_one(model, m);
  for (const ScheduleOptions& schedule :
       {ScheduleOptions{.num_ranks = 3, .num_micro_batches = m},
        ScheduleOptions{.kind = ScheduleKind::kZbH1, .num_ranks = 2, .num_micro_batches = m},
        ScheduleOptions{.kind = ScheduleKind::kZbV, .num_ranks = 2, .num_chunks = 2, .num_micro_batches = m}}) {
    const RanksOutcome many = run_all(model, schedule);
    for (const auto& [name, values] : one.gradients) {
      double largest = 0;
      for (double v : values) largest = std::max(largest, std::abs(v));
      const std::vector<double>& sum = many.all.gradients.at(name);
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(sum[i], values[i], tolerance(DType::kFloat64, 12 * m, largest)) << name << describe(schedule);
    }
    EXPECT_EQ(many.all.losses, one.losses);
  }
}

TEST(ExecutorSchedules, StagesWithoutLayersHandOnWhatTheyGet) {
  const DeepModelOptions model{.num_layers = 4};
  const Outcome one = run_one(model, 3);
  for (const char* text : {"E|t*4|L", "Et*4||L", "E||t*4L"}) {
    const PipelineLayout layout = parse_layout(text, {.num_ranks = 3, .num_layers = 4});
    const RanksOutcome many = run_all(model, layout, {.num_ranks = 3, .num_micro_batches = 3});
    EXPECT_EQ(many.all.losses, one.losses) << text;
    EXPECT_EQ(many.all.gradients, one.gradients) << text;
  }
  const PipelineLayout turn = parse_layout("Ett|||ttL", {.num_ranks = 2, .num_layers = 4, .order = StageOrder::kV});
  const RanksOutcome many =
      run_all(model, turn, {.kind = ScheduleKind::kZbV, .num_ranks = 2, .num_chunks = 2, .num_micro_batches = 3});
  EXPECT_EQ(many.all.gradients, one.gradients) << "both sides of the V's turn are empty";
}

TEST(ExecutorSchedules, EvaluationGivesTheLossesOfOneRank) {
  const DeepModelOptions model{.num_layers = 7};
  for (ScheduleOptions schedule : all_schedules()) {
    schedule.forward_only = true;
    const auto one = run_all(model, {.num_micro_batches = schedule.num_micro_batches, .forward_only = true}).all;
    EXPECT_EQ(run_all(model, schedule).all.losses, one.losses) << describe(schedule);
    EXPECT_EQ(one.losses.size(), static_cast<size_t>(schedule.num_micro_batches));
  }
}

TEST(ExecutorSchedules, MemoryGrowsByTheActivationsThatTheSimulatorCounts) {
  // 24 layers: four each on 3 ranks with 2 chunks. What one chunk keeps of one micro-batch shows in GPipe runs.
  const DeepModelOptions model{.num_layers = 24};
  const auto peaks = [&](const ScheduleOptions& schedule) {
    std::vector<double> bytes;
    for (const Outcome& out : run_all(model, schedule).ranks)
      bytes.push_back(static_cast<double>(out.peak_bytes - out.base_bytes));
    return bytes;
  };
  const auto gpipe = [&](int m) {
    return peaks({.kind = ScheduleKind::kGPipe, .num_ranks = 3, .num_micro_batches = m});
  };
  const std::vector<double> two = gpipe(2), five = gpipe(5);
  for (const ScheduleOptions& schedule :
       {ScheduleOptions{.num_ranks = 3, .num_micro_batches = 8},
        ScheduleOptions{.kind = ScheduleKind::kInterleaved, .num_ranks = 3, .num_chunks = 2, .num_micro_batches = 6},
        ScheduleOptions{.kind = ScheduleKind::kInterleaved,
        .num_ranks = 3,
        .num_chunks = 2,
        .num_micro_batches = 8,
        .micro_batch_group_size = 4}}) {
    const Simulation simulated = simulate(make_schedules(schedule), placement_of(schedule), {});
    const std::vector<double> bytes = peaks(schedule);
    for (size_t r = 1; r < 3; ++r) {  // rank 0 also has the embedding of a micro-batch, which is as large as nothing
      const double of_micro_batch = (five[r] - two[r]) / 3, fixed = two[r] - 2 * of_micro_batch;
      const double counted = simulated.ranks[r].peak_activations / schedule.num_chunks;
      EXPECT_NEAR((bytes[r] - fixed) / of_micro_batch, counted, 0.25) << describe(schedule) << " rank " << r;
    }
  }
}

}  // namespace
}  // namespace megatron::testing
