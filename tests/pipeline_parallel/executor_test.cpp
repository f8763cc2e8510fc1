#include "megatron/pipeline_parallel/executor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "megatron/comm/meta/meta_world.h"
#include "megatron/distributed/param_and_grad_buffer.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/pipeline_parallel/pipeline_schedule.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"
#include "tests/testing/toy_model.h"

namespace megatron::testing {
namespace {

struct TrainSetup {
  DeviceKind device = DeviceKind::kCpu;
  ToyOptions model;
  WeightGradient weight_gradient = WeightGradient::kFused;
  SavePolicy save = SavePolicy::kKeep;
  ProcessGroup tensor_group, pipeline_group;
  int num_steps = 1;
  int num_micro_batches = 4;
  bool skips_last_expert = false;  // in every micro-batch
};

struct TrainOutcome {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;  // of this rank's shards
  std::map<std::string, int> num_ready;
  std::vector<Arena::Event> events;
  int64_t peak_bytes = 0, live_bytes = 0, peak_activation_bytes = 0;
  bool same_bits(const TrainOutcome& other) const { return loss == other.loss && gradients == other.gradients; }
};

/// Segments of this pipeline rank: the first half of them, or the rest.
Chunk chunk_of(const Chunk& all, int rank, int num_ranks) {
  const size_t first = all.size() * static_cast<size_t>(rank) / static_cast<size_t>(num_ranks);
  const size_t end = all.size() * static_cast<size_t>(rank + 1) / static_cast<size_t>(num_ranks);
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(end)};
}

/// Leftovers of the last step must not be mistaken for a gradient of this one.
void forget_gradient(const Context& ctx, Parameter& p) {
  launch(ctx, [&](auto& stream) {
    kernels::fill(stream, {.y = p.main_grad().view(), .value = std::numeric_limits<double>::quiet_NaN()});
  });
}

TrainOutcome train(const TrainSetup& setup) {
  TrainOutcome out;
  TestDevice test(setup.device, 1);
  {
    Context ctx = test.context();
    ctx.save = setup.save;
    ToyModel model(ctx, setup.tensor_group, setup.model);
    model.initialize(ctx);
    ParamAndGradBuffer buffer(ctx, model.parameters(), setup.model.dtype);
    for (Parameter* p : buffer.parameters()) p->on_ready = [&](Parameter& ready) { ++out.num_ready[ready.name()]; };
    std::vector<ToyBatch> batches = toy_batches(ctx, setup.num_micro_batches);
    for (ToyBatch& batch : batches) batch.skips_last_expert = batch.skips_last_expert || setup.skips_last_expert;
    test.step.loss_seed = 1.0 / (5 * setup.num_micro_batches);
    const Shape border = {ToyModel::kSequence, 1, ToyModel::kHidden};
    const int rank = setup.pipeline_group.rank(), num_ranks = setup.pipeline_group.size();
    const ExecutorOptions options{.chunks = {chunk_of(model.segments(batches), rank, num_ranks)},
                                  .border_payload = same_on_all_borders(
                                      {{"hidden", border, setup.model.dtype}, {"normed", border, setup.model.dtype}}),
                                  .pipeline_group = &setup.pipeline_group};
    for (int step = 0; step < setup.num_steps; ++step) {
      out.num_ready.clear();
      out.loss = 0;
      buffer.begin_step();
      for (Parameter* p : buffer.parameters()) forget_gradient(ctx, *p);
      Executor executor(ctx, options);
      executor.on_output = [&](const Payload& output, int) {
        launch(ctx, [&](auto&) { out.loss += *at(output, "loss").data<double>() * test.step.loss_seed; });
      };
      const auto schedules = make_schedules({.num_ranks = num_ranks,
                                             .num_micro_batches = setup.num_micro_batches,
                                             .weight_gradient = setup.weight_gradient});
      executor.run(schedules[static_cast<size_t>(rank)]);
      buffer.finish_step(ctx);
    }
    EXPECT_EQ(test.step.overflow, 0);
    for (Parameter* p : buffer.parameters()) out.gradients[p->name()] = values_of(p->main_grad());
  }
  out.events = test.device.arena.events();
  out.peak_bytes = test.device.arena.total().peak;
  out.peak_activation_bytes = test.device.arena.amount(MemoryUse::kActivations).peak;
  out.live_bytes = test.device.arena.total().live + test.device.pinned.total().live;
  return out;
}

/// Infinite where sizes differ or a value is not a number.
double largest_error(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double error = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    error = std::max(error, std::isnan(difference) ? HUGE_VAL : difference);
  }
  return error;
}

TEST(Executor, MakesEachTrainableParameterReadyOnceAndLeavesNoMemory) {
  for (const bool recompute : {false, true}) {
    const TrainOutcome out = train({.model = {.recompute = recompute}});
    EXPECT_EQ(out.num_ready.size(), out.gradients.size());
    for (const auto& [name, count] : out.num_ready) EXPECT_EQ(count, 1) << name;
    EXPECT_EQ(out.live_bytes, 0);
  }
}

TEST(Executor, GivesZeroGradientsToDeadUnusedAndUnlistedParameters) {
  const TrainOutcome out = train({});
  for (const std::string name : {"dead", "never", "unlisted"})
    for (double g : out.gradients.at(name)) EXPECT_EQ(g, 0) << name;
  EXPECT_FALSE(out.gradients.contains("frozen"));
  double sum = 0;
  for (double g : out.gradients.at("expert1.up")) sum += std::abs(g);
  EXPECT_GT(sum, 0) << "expert 1 is skipped by one micro-batch only";
}

TEST(Executor, SplitRecomputeAndOffloadGiveTheSameBits) {
  const TrainOutcome plain = train({});
  for (const auto& [name, values] : plain.gradients)
    for (size_t i = 0; i < values.size(); ++i) ASSERT_FALSE(std::isnan(values[i])) << name << " element " << i;
  const TrainOutcome split = train({.weight_gradient = WeightGradient::kSplit});
  const TrainOutcome again = train({.model = {.recompute = true}});
  const TrainOutcome again_split = train({.model = {.recompute = true}, .weight_gradient = WeightGradient::kSplit});
  const TrainOutcome away = train({.save = SavePolicy::kOffload});
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
          const TrainOutcome real = train(setup);
          setup.device = DeviceKind::kMeta;
          const TrainOutcome meta = train(setup);
          EXPECT_EQ(real.events, meta.events);
          EXPECT_EQ(real.peak_bytes, meta.peak_bytes);
          EXPECT_GT(real.events.size(), 100U);
        }
}

TEST(Executor, FrozenWeightsHaveNoW) {
  const TrainOutcome trained = train({.weight_gradient = WeightGradient::kSplit});
  const TrainOutcome frozen = train({.model = {.is_frozen = true}, .weight_gradient = WeightGradient::kSplit});
  EXPECT_EQ(trained.loss, frozen.loss);
  EXPECT_EQ(trained.gradients.at("expert0.up"), frozen.gradients.at("expert0.up"));
  EXPECT_LT(frozen.peak_activation_bytes, trained.peak_activation_bytes) << "no x and dy are kept for a frozen weight";
}

TEST(Executor, RejectsSchedulesThatLackAnAction) {
  TestDevice test(DeviceKind::kCpu, 1);
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

/// `setup` with the groups of this rank of pipeline x tensor ranks, tensor ranks next to each other.
TrainSetup with_groups(TrainSetup setup, World& world, int num_pipeline, int num_tensor) {
  RankLists tensor_groups, pipeline_groups(static_cast<size_t>(num_tensor));
  for (int p = 0; p < num_pipeline; ++p) {
    tensor_groups.emplace_back();
    for (int t = 0; t < num_tensor; ++t) {
      tensor_groups.back().push_back(p * num_tensor + t);
      pipeline_groups[static_cast<size_t>(t)].push_back(p * num_tensor + t);
    }
  }
  setup.tensor_group = world.split("tp", tensor_groups).value();
  setup.pipeline_group = world.split("pp", pipeline_groups).value();
  return setup;
}

std::vector<TrainOutcome> train_on_each_rank(int num_pipeline, int num_tensor, const TrainSetup& setup) {
  std::vector<TrainOutcome> outcomes(static_cast<size_t>(num_pipeline * num_tensor));
  run_ranks(num_pipeline * num_tensor, [&](RankContext& rank) {
    outcomes[static_cast<size_t>(rank.rank)] = train(with_groups(setup, rank.world, num_pipeline, num_tensor));
  });
  return outcomes;
}

/// Adds up what the pipeline ranks have of each parameter; shards of tensor ranks have names of their own.
TrainOutcome train_on_ranks(int num_pipeline, int num_tensor, const TrainSetup& setup) {
  TrainOutcome sum;
  const std::vector<TrainOutcome> outcomes = train_on_each_rank(num_pipeline, num_tensor, setup);
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const size_t tensor_rank = rank % static_cast<size_t>(num_tensor);
    if (tensor_rank == 0) sum.loss += outcomes[rank].loss;
    for (const auto& [name, values] : outcomes[rank].gradients) {
      const bool is_cut = num_tensor > 1 && (name.starts_with("qkv") || name == "proj.weight");
      if (!is_cut && tensor_rank > 0) continue;
      std::vector<double>& total = sum.gradients[is_cut ? fmt::format("{} shard {}", name, tensor_rank) : name];
      total.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) total[i] += values[i];
    }
  }
  return sum;
}

TEST(Executor, TwoPipelineRanksGiveTheGradientsOfOne) {
  for (const bool recompute : {false, true})
    for (const auto weight_gradient : {WeightGradient::kFused, WeightGradient::kSplit}) {
      const TrainSetup setup{.model = {.recompute = recompute}, .weight_gradient = weight_gradient};
      const TrainOutcome one = train(setup), two = train_on_ranks(2, 1, setup);
      EXPECT_EQ(one.loss, two.loss);
      ASSERT_EQ(one.gradients.size(), two.gradients.size());
      for (const auto& [name, values] : one.gradients) {
        if (name == "tied")  // each rank sums its own uses: 4 micro-batches of 6 tokens twice
          EXPECT_LE(largest_error(values, two.gradients.at(name)), tolerance(DType::kFloat64, 48));
        else
          EXPECT_EQ(values, two.gradients.at(name)) << name;
      }
    }
}

/// The columns [begin, begin + n) of a [rows, columns] matrix.
std::vector<double> columns_of(const std::vector<double>& values, int64_t columns, int64_t begin, int64_t n) {
  std::vector<double> part;
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(columns))
    part.insert(part.end(), values.begin() + static_cast<std::ptrdiff_t>(row) + begin,
                values.begin() + static_cast<std::ptrdiff_t>(row) + begin + n);
  return part;
}

void expect_tensor_shards(const TrainOutcome& one, const TrainOutcome& two) {
  // A value sums at most the features of the experts or the tokens of 4 micro-batches, and passes through few layers.
  const double bound = tolerance(DType::kFloat64, 4 * ToyModel::kSequence, 4);
  EXPECT_NEAR(one.loss, two.loss, bound);
  const int64_t h = ToyModel::kHidden, d = h / ToyModel::kHeads;
  for (const auto& [name, values] : one.gradients)
    for (int64_t rank = 0; rank < 2; ++rank) {
      const auto size = static_cast<int64_t>(values.size());
      const std::string shard = fmt::format("{} shard {}", name, rank);
      if (name.starts_with("qkv"))  // rows of a head's q, k and v lie together
        EXPECT_LE(largest_error(columns_of(values, size, rank * size / 2, size / 2), two.gradients.at(shard)), bound);
      else if (name == "proj.weight")
        EXPECT_LE(largest_error(columns_of(values, h, rank * d, d), two.gradients.at(shard)), bound);
      else
        EXPECT_LE(largest_error(values, two.gradients.at(name)), bound) << name;
    }
}

TEST(Executor, TwoTensorRanksGiveTheShardsOfOne) {
  for (const bool recompute : {false, true})
    for (const auto weight_gradient : {WeightGradient::kFused, WeightGradient::kSplit}) {
      const TrainSetup setup{.model = {.recompute = recompute}, .weight_gradient = weight_gradient};
      expect_tensor_shards(train(setup), train_on_ranks(1, 2, setup));
    }
}

TEST(Executor, TwoPipelineTimesTwoTensorRanksGiveTheShardsOfOne) {
  expect_tensor_shards(train({}), train_on_ranks(2, 2, {.weight_gradient = WeightGradient::kSplit}));
}

TEST(Executor, MetaRunOfAnyRankHasTheLogAndThePeakOfTheRealRank) {
  for (const auto& [num_pipeline, num_tensor] : {std::pair{2, 1}, {1, 2}, {2, 2}}) {
    TrainSetup setup{.model = {.recompute = true}, .weight_gradient = WeightGradient::kSplit};
    const std::vector<TrainOutcome> real = train_on_each_rank(num_pipeline, num_tensor, setup);
    setup.device = DeviceKind::kMeta;
    for (size_t rank = 0; rank < real.size(); ++rank) {
      MetaWorld world(static_cast<int>(rank), num_pipeline * num_tensor);
      const TrainOutcome meta = train(with_groups(setup, world, num_pipeline, num_tensor));
      EXPECT_EQ(real[rank].events, meta.events) << "rank " << rank;
      EXPECT_EQ(real[rank].peak_bytes, meta.peak_bytes) << "rank " << rank;
    }
  }
}

TEST(Executor, PipelineRanksNeedNoMoreMemoryForMoreMicroBatches) {
  const auto few = train_on_each_rank(2, 1, {}), many = train_on_each_rank(2, 1, {.num_micro_batches = 16});
  for (size_t rank = 0; rank < few.size(); ++rank)
    EXPECT_EQ(few[rank].peak_activation_bytes, many[rank].peak_activation_bytes) << "rank " << rank;
}

TEST(Executor, ARankThatSkipsAModuleMakesItReadyLikeTheOthers) {
  std::vector<TrainOutcome> outcomes(2);
  run_ranks(2, [&](RankContext& rank) {
    outcomes[static_cast<size_t>(rank.rank)] = train({.skips_last_expert = rank.rank == 1});
  });
  EXPECT_EQ(outcomes[0].num_ready, outcomes[1].num_ready);
  EXPECT_EQ(outcomes[1].num_ready.at("expert1.up"), 1);
  EXPECT_GT(largest_error(outcomes[0].gradients.at("expert1.up"), outcomes[1].gradients.at("expert1.up")), 0);
  for (double g : outcomes[1].gradients.at("expert1.up")) EXPECT_EQ(g, 0);
}

TEST(Executor, TwoModelsTrainAtOnceInOneProcess) {
  const TrainSetup setups[] = {{.num_steps = 3},
                               {.model = {.recompute = true}, .num_steps = 3, .num_micro_batches = 5}};
  TrainOutcome at_once[2];
  std::thread other([&] { at_once[1] = train(setups[1]); });
  at_once[0] = train(setups[0]);
  other.join();
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at_once[i].same_bits(train(setups[i]))) << i;
}

/// Gradients of a student that follows the hidden states `wanted`.
std::vector<double> student_gradients(const std::function<std::vector<double>()>& wanted) {
  TestDevice test(DeviceKind::kCpu, 1);
  Context ctx = test.context();
  ToyModel student(ctx, {}, {.prefix = "student."});
  student.initialize(ctx);
  ParamAndGradBuffer buffer(ctx, student.parameters(), DType::kFloat64);
  const std::vector<ToyBatch> batches = toy_batches(ctx, 1);
  buffer.begin_step();
  Tape tape(test.device);
  ctx.tape = &tape;
  ctx.mode = GradMode::kRecord;
  const Tensor got = student.hidden(ctx, batches[0]);
  Tensor difference = ctx.empty_like("difference", got);
  const std::vector<double> target = wanted();
  for (size_t i = 0; i < target.size(); ++i) difference.data<double>()[i] = got.data<double>()[i] - target[i];
  tape.seed(ctx, got.slot, difference);
  tape.backward(ctx, Phase::kBW, 0);
  buffer.finish_step(ctx);
  return values_of(buffer.grads());
}

TEST(Executor, AStudentAndItsFrozenTeacherDoNotDisturbEachOther) {
  const auto teacher_states = [] {
    TestDevice test(DeviceKind::kCpu, 1);
    Context ctx = test.context();
    ToyModel teacher(ctx, {}, {.prefix = "teacher."});
    teacher.initialize(ctx);
    const std::vector<double> states = values_of(teacher.hidden(ctx, toy_batches(ctx, 1)[0]));
    for (Parameter* p : teacher.parameters()) EXPECT_FALSE(p->main_grad().defined()) << p->name();
    return states;
  };
  const std::vector<double> before = teacher_states();
  const std::vector<double> apart = student_gradients([&] { return before; });
  EXPECT_EQ(apart, student_gradients(teacher_states));
  EXPECT_GT(largest_error(apart, std::vector<double>(apart.size())), 0);
}

}  // namespace
}  // namespace megatron::testing
