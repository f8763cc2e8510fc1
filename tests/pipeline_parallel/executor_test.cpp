#include "megatron/pipeline_parallel/executor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "megatron/distributed/param_and_grad_buffer.h"
#include "megatron/pipeline_parallel/pipeline_schedule.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"
#include "tests/testing/toy_model.h"

namespace megatron::testing {
namespace {

constexpr int kMicroBatches = 4;

struct TrainSetup {
  DeviceKind device = DeviceKind::kCpu;
  ToyOptions model;
  WeightGradient weight_gradient = WeightGradient::kFused;
  SavePolicy save = SavePolicy::kKeep;
  ProcessGroup tensor_group, pipeline_group;
  int num_steps = 1;
};

struct Outcome {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;  // of this rank's shards
  std::map<std::string, int> num_ready;
  std::vector<Arena::Event> events;
  int64_t peak_bytes = 0, live_bytes = 0;
  bool same_bits(const Outcome& other) const { return loss == other.loss && gradients == other.gradients; }
};

/// Segments of this pipeline rank: the first half of them, or the rest.
Chunk chunk_of(const Chunk& all, int rank, int num_ranks) {
  const size_t first = all.size() * static_cast<size_t>(rank) / static_cast<size_t>(num_ranks);
  const size_t end = all.size() * static_cast<size_t>(rank + 1) / static_cast<size_t>(num_ranks);
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(end)};
}

Outcome train(const TrainSetup& setup) {
  Outcome out;
  TestDevice test(setup.device, 1);
  {
    Context ctx = test.context();
    ctx.save = setup.save;
    ToyModel model(ctx, setup.tensor_group, setup.model);
    model.initialize(ctx);
    ParamAndGradBuffer buffer(ctx, model.parameters(), setup.model.dtype);
    for (Parameter* p : buffer.parameters()) p->on_ready = [&](Parameter& ready) { ++out.num_ready[ready.name()]; };
    const std::vector<ToyBatch> batches = toy_batches(ctx, kMicroBatches);
    test.step.loss_seed = 1.0 / (5 * kMicroBatches);
    const Shape border = {ToyModel::kSequence, 1, ToyModel::kHidden};
    const int rank = setup.pipeline_group.rank(), num_ranks = setup.pipeline_group.size();
    const ExecutorOptions options{
        .chunks = {chunk_of(model.segments(batches), rank, num_ranks)},
        .border_payload = {{"hidden", border, setup.model.dtype}, {"normed", border, setup.model.dtype}},
        .pipeline_group = &setup.pipeline_group};
    for (int step = 0; step < setup.num_steps; ++step) {
      out.num_ready.clear();
      out.loss = 0;
      buffer.begin_step();
      Executor executor(ctx, options);
      executor.on_output = [&](const Payload& output, int) {
        launch(ctx, [&](auto&) { out.loss += *at(output, "loss").data<double>() * test.step.loss_seed; });
      };
      const auto schedules = make_schedules(
          {.num_ranks = num_ranks, .num_micro_batches = kMicroBatches, .weight_gradient = setup.weight_gradient});
      executor.run(schedules[static_cast<size_t>(rank)]);
      buffer.finish_step(ctx);
    }
    EXPECT_EQ(test.step.overflow, 0);
    for (Parameter* p : buffer.parameters()) out.gradients[p->name()] = values_of(p->main_grad());
  }
  out.events = test.device.arena.events();
  out.peak_bytes = test.device.arena.total().peak;
  out.live_bytes = test.device.arena.total().live + test.device.pinned.total().live;
  return out;
}

double largest_error(const std::vector<double>& a, const std::vector<double>& b) {
  double error = 0;
  for (size_t i = 0; i < a.size(); ++i) error = std::max(error, std::abs(a[i] - b[i]));
  return error;
}

TEST(Executor, MakesEachTrainableParameterReadyOnceAndLeavesNoMemory) {
  for (const bool recompute : {false, true}) {
    const Outcome out = train({.model = {.recompute = recompute}});
    EXPECT_EQ(out.num_ready.size(), out.gradients.size());
    for (const auto& [name, count] : out.num_ready) EXPECT_EQ(count, 1) << name;
    EXPECT_EQ(out.live_bytes, 0);
  }
}

TEST(Executor, GivesZeroGradientsToDeadUnusedAndUnlistedParameters) {
  const Outcome out = train({});
  for (const std::string name : {"dead", "never", "unlisted"})
    for (double g : out.gradients.at(name)) EXPECT_EQ(g, 0) << name;
  EXPECT_FALSE(out.gradients.contains("frozen"));
  double sum = 0;
  for (double g : out.gradients.at("expert1.up")) sum += std::abs(g);
  EXPECT_GT(sum, 0) << "expert 1 is skipped by one micro-batch only";
}

TEST(Executor, SplitRecomputeAndOffloadGiveTheSameBits) {
  const Outcome plain = train({});
  for (const auto& [name, values] : plain.gradients)
    for (size_t i = 0; i < values.size(); ++i) ASSERT_FALSE(std::isnan(values[i])) << name << " element " << i;
  const Outcome split = train({.weight_gradient = WeightGradient::kSplit});
  const Outcome again = train({.model = {.recompute = true}});
  const Outcome again_split = train({.model = {.recompute = true}, .weight_gradient = WeightGradient::kSplit});
  const Outcome away = train({.save = SavePolicy::kOffload});
  EXPECT_TRUE(plain.same_bits(split));
  EXPECT_TRUE(plain.same_bits(again));
  EXPECT_TRUE(plain.same_bits(again_split));
  EXPECT_TRUE(plain.same_bits(away));
  EXPECT_LT(again.peak_bytes, plain.peak_bytes);
  EXPECT_LT(away.peak_bytes, plain.peak_bytes);
  EXPECT_TRUE(plain.same_bits(train({.num_steps = 2}))) << "a second step overwrites the gradients of the first";
}

TEST(Executor, MetaRunHasTheLogAndThePeakOfTheRealRun) {
  for (const bool recompute : {false, true})
    for (const auto weight_gradient : {WeightGradient::kFused, WeightGradient::kSplit})
      for (const auto save : {SavePolicy::kKeep, SavePolicy::kOffload})
        for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
          TrainSetup setup{
              .model = {.dtype = dtype, .recompute = recompute}, .weight_gradient = weight_gradient, .save = save};
          const Outcome real = train(setup);
          setup.device = DeviceKind::kMeta;
          const Outcome meta = train(setup);
          EXPECT_EQ(real.events, meta.events);
          EXPECT_EQ(real.peak_bytes, meta.peak_bytes);
          EXPECT_GT(real.events.size(), 100U);
        }
}

TEST(Executor, FrozenWeightsHaveNoW) {
  const Outcome trained = train({.weight_gradient = WeightGradient::kSplit});
  const Outcome frozen = train({.model = {.is_frozen = true}, .weight_gradient = WeightGradient::kSplit});
  EXPECT_FALSE(frozen.gradients.contains("tied"));
  EXPECT_EQ(trained.loss, frozen.loss);
  EXPECT_EQ(trained.gradients.at("expert0.up"), frozen.gradients.at("expert0.up"));
  EXPECT_LT(frozen.peak_bytes, trained.peak_bytes) << "no x and dy are kept for a frozen weight";
}

TEST(Executor, RefusesSchedulesThatLackAnAction) {
  TestDevice test;
  const Context ctx = test.context();
  ToyModel model(ctx, {}, {});
  model.initialize(ctx);
  ParamAndGradBuffer buffer(ctx, model.parameters(), DType::kFloat64);
  const std::vector<ToyBatch> batches = toy_batches(ctx, 1);
  const ExecutorOptions options{.chunks = {model.segments(batches)}};
  for (const Schedule& wrong :
       {Schedule{{.kind = ActionKind::kF}}, Schedule{{.kind = ActionKind::kF}, {.kind = ActionKind::kB}},
        Schedule{{.kind = ActionKind::kBW}}}) {
    buffer.begin_step();
    Executor executor(ctx, options);
    EXPECT_THROW(executor.run(wrong), InternalError) << to_string(wrong);
  }
}

TEST(Executor, BackwardInPiecesOfSegmentsGivesTheSameBits) {
  TestDevice test(DeviceKind::kCpu, 1);
  const Context ctx = test.context();
  ToyModel model(ctx, {}, {});
  model.initialize(ctx);
  ParamAndGradBuffer buffer(ctx, model.parameters(), DType::kFloat64);
  const std::vector<ToyBatch> batches = toy_batches(ctx, 1);
  const ExecutorOptions options{.chunks = {model.segments(batches)}};
  const auto gradients = [&](const Schedule& schedule) {
    buffer.begin_step();
    Executor(ctx, options).run(schedule);
    buffer.finish_step(ctx);
    return values_of(buffer.grads());
  };
  const auto whole = gradients({{.kind = ActionKind::kF}, {.kind = ActionKind::kBW}});
  const auto pieces = gradients({{.kind = ActionKind::kF, .end_segment = 2},
                                 {.kind = ActionKind::kF, .first_segment = 2},
                                 {.kind = ActionKind::kBW, .first_segment = 3},
                                 {.kind = ActionKind::kB, .first_segment = 1, .end_segment = 3},
                                 {.kind = ActionKind::kW, .first_segment = 1},
                                 {.kind = ActionKind::kBW, .end_segment = 1}});
  EXPECT_EQ(whole, pieces);
}

/// Runs `setup` on pipeline x tensor ranks and adds up what the ranks have of each parameter, as whole tensors.
Outcome train_on_ranks(int num_pipeline, int num_tensor, const TrainSetup& setup) {
  Outcome sum;
  std::mutex mutex;
  run_ranks(num_pipeline * num_tensor, [&](RankContext& rank) {
    RankLists tensor_groups, pipeline_groups(static_cast<size_t>(num_tensor));
    for (int p = 0; p < num_pipeline; ++p) {
      tensor_groups.emplace_back();
      for (int t = 0; t < num_tensor; ++t) {
        tensor_groups.back().push_back(p * num_tensor + t);
        pipeline_groups[static_cast<size_t>(t)].push_back(p * num_tensor + t);
      }
    }
    TrainSetup own = setup;
    own.tensor_group = rank.world.split("tp", tensor_groups).value();
    own.pipeline_group = rank.world.split("pp", pipeline_groups).value();
    const Outcome out = train(own);
    const std::lock_guard lock(mutex);
    const bool is_first_tensor_rank = own.tensor_group.rank() == 0;
    if (is_first_tensor_rank) sum.loss += out.loss;
    for (const auto& [name, values] : out.gradients) {
      std::vector<double>& total =
          sum.gradients[name + (name == "qkv.weight" || name == "qkv.bias" || name == "proj.weight"
                                    ? fmt::format(" shard {}", own.tensor_group.rank())
                                    : "")];
      if (name.find("qkv") != 0 && name != "proj.weight" && !is_first_tensor_rank) continue;
      total.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) total[i] += values[i];
    }
  });
  return sum;
}

TEST(Executor, TwoPipelineRanksGiveTheGradientsOfOne) {
  for (const bool recompute : {false, true})
    for (const auto weight_gradient : {WeightGradient::kFused, WeightGradient::kSplit}) {
      const TrainSetup setup{.model = {.recompute = recompute}, .weight_gradient = weight_gradient};
      const Outcome one = train(setup), two = train_on_ranks(2, 1, setup);
      EXPECT_EQ(one.loss, two.loss);
      for (const auto& [name, values] : one.gradients)
        EXPECT_LE(largest_error(
                      values, two.gradients.count(name) ? two.gradients.at(name) : two.gradients.at(name + " shard 0")),
                  tolerance(DType::kFloat64, 100))
            << name;
    }
}

TEST(Executor, TwoTensorRanksGiveTheShardsOfOne) {
  const Outcome one = train({}), two = train_on_ranks(1, 2, {});
  EXPECT_NEAR(one.loss, two.loss, tolerance(DType::kFloat64, 100, 3));
  const int64_t h = ToyModel::kHidden, d = h / ToyModel::kHeads;
  for (const auto& [name, values] : one.gradients) {
    if (name == "qkv.weight" || name == "qkv.bias") {  // rows of a head's q, k and v lie together
      const auto half = static_cast<std::ptrdiff_t>(values.size() / 2);
      EXPECT_LE(largest_error({values.begin(), values.begin() + half}, two.gradients.at(name + " shard 0")), 1e-14);
      EXPECT_LE(largest_error({values.begin() + half, values.end()}, two.gradients.at(name + " shard 1")), 1e-14);
    } else if (name == "proj.weight") {  // columns are cut
      for (int64_t r = 0; r < 2; ++r)
        for (int64_t i = 0; i < h; ++i)
          for (int64_t j = 0; j < d; ++j)
            EXPECT_NEAR(values[static_cast<size_t>(i * h + r * d + j)],
                        two.gradients.at(fmt::format("proj.weight shard {}", r))[static_cast<size_t>(i * d + j)],
                        1e-14);
    } else {
      EXPECT_LE(largest_error(values, two.gradients.at(name)), tolerance(DType::kFloat64, 100)) << name;
    }
  }
}

TEST(Executor, TwoModelsLiveInOneProcess) {
  // A student follows the hidden states of a frozen teacher: two models, two devices, one tape.
  TestDevice teacher_device, student_device;
  Context teacher_ctx = teacher_device.context(), student_ctx = student_device.context();
  ToyModel teacher(teacher_ctx, {}, {.prefix = "teacher."}), student(student_ctx, {}, {.prefix = "student."});
  teacher.initialize(teacher_ctx);
  student.initialize(student_ctx);
  ParamAndGradBuffer buffer(student_ctx, student.parameters(), DType::kFloat64);
  const std::vector<ToyBatch> teacher_batches = toy_batches(teacher_ctx, 1), batches = toy_batches(student_ctx, 1);
  buffer.begin_step();
  Tape tape(student_device.device);
  Context ctx = student_ctx;
  ctx.tape = &tape;
  ctx.mode = GradMode::kRecord;
  const Tensor wanted = teacher.hidden(teacher_ctx, teacher_batches[0]), got = student.hidden(ctx, batches[0]);
  Tensor difference = ctx.empty_like("difference", got);
  for (int64_t i = 0; i < got.num_elements(); ++i)
    difference.data<double>()[i] = got.data<double>()[i] - wanted.data<double>()[i];
  tape.seed(ctx, got.slot, difference);
  tape.backward(ctx, Phase::kBW, 0);
  buffer.finish_step(ctx);
  double sum = 0;
  for (double g : values_of(buffer.grads())) sum += std::abs(g);
  EXPECT_GT(sum, 0);
  for (Parameter* p : teacher.parameters()) EXPECT_FALSE(p->main_grad().defined()) << p->name();
}

}  // namespace
}  // namespace megatron::testing
