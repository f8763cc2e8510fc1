#include "megatron/distributed/distributed_data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "megatron/comm/meta/meta_world.h"
#include "megatron/kernels/elementwise.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/recorded_operations.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

/// Awkward sizes and two dtypes; "frozen" is not trained, "unused" gets no gradient on rank 1.
struct Parameters {
  explicit Parameters(const Context& ctx, DType dtype = DType::kFloat32) {
    add(ctx, "embedding", {13, 7}, dtype);
    add(ctx, "norm", {129}, dtype == DType::kFloat32 ? DType::kBFloat16 : dtype);
    add(ctx, "frozen", {10, 10}, dtype, false);
    add(ctx, "unused", {64}, dtype);
    add(ctx, "scalar", {1}, dtype);
    add(ctx, "cube", {5, 5, 3}, dtype);
    add(ctx, "final_norm", {31}, dtype == DType::kFloat32 ? DType::kBFloat16 : dtype);
  }
  void add(const Context& ctx, const std::string& name, const Shape& shape, DType dtype, bool is_trainable = true) {
    own.push_back(std::make_unique<Parameter>(
        ctx, ParameterOptions{
                 .name = name, .shard = ShardSpec::whole(shape), .dtype = dtype, .is_trainable = is_trainable}));
    fill_uniform(ctx, own.back()->value(), name);
  }
  std::vector<Parameter*> all() const {
    std::vector<Parameter*> list;
    for (const auto& parameter : own) list.push_back(parameter.get());
    return list;
  }
  std::vector<std::unique_ptr<Parameter>> own;
};

struct ReduceCase {
  int replicas = 3;
  DistributedDataParallelConfig config = {};
  DType dtype = DType::kFloat32;
  bool same_fill_order = false;  // else ranks complete parameters in different orders
};

struct Outcome {
  std::map<std::string, std::vector<double>> gradients, weights;  // by parameter and begin of the owned range
  std::vector<std::string> calls;                                 // "op site bytes" in order of issue
  int64_t calls_before_finish = 0;
  std::vector<Arena::Event> events;
};

bool has_gradient(const Parameter& parameter, int rank) { return parameter.name() != "unused" || rank != 1; }

/// Writes gradients as backward would, parameter by parameter.
void write_gradients(const Context& ctx, const Parameters& parameters, int rank, bool same_order) {
  std::vector<Parameter*> order = parameters.all();
  std::reverse(order.begin(), order.end());
  if (!same_order) std::rotate(order.begin(), order.begin() + rank, order.end());
  for (Parameter* parameter : order) {
    if (!parameter->is_trainable() || !has_gradient(*parameter, rank)) continue;
    parameter->grad_target(ctx);
    fill_uniform(ctx, parameter->main_grad(), fmt::format("{} of {}", parameter->name(), rank));
    parameter->finish(ctx);  // ready: no segment is open
  }
}

Outcome reduce(const ReduceCase& setup, World& world, DeviceKind kind) {
  Outcome out;
  TestDevice test(kind, 1);
  {
    const Context ctx = test.context();
    const ProcessGroupCollection groups = ProcessGroupCollection::make(
        world, ParallelLayout({.world_size = setup.replicas,
                               .num_distributed_optimizer_instances =
                                   static_cast<int>(setup.config.num_distributed_optimizer_instances)}));
    const Parameters parameters(ctx, setup.dtype);
    DistributedDataParallel ddp(ctx, {parameters.all()}, groups, setup.config);
    const int64_t first = world.recorder().num_operations();
    for (int step = 0; step < 2; ++step) {  // the second overwrites what the first left
      ddp.begin_step();
      write_gradients(ctx, parameters, world.rank(), setup.same_fill_order);
      if (step == 0) out.calls_before_finish = world.recorder().num_operations() - first;
      ddp.finish_grad_sync();
    }
    for (const FlatRange& range : ddp.owned_ranges())
      out.gradients[fmt::format("{} from {}", range.parameter->name(), range.begin)] =
          values_of(range.of(range.parameter->main_grad()));
    ddp.start_param_sync();
    ddp.finish_param_sync();
    for (const Parameter* parameter : parameters.all()) out.weights[parameter->name()] = values_of(parameter->value());
    out.calls = operation_lines_since(world.recorder(), first);
  }
  out.events = test.device.arena.events();
  return out;
}

std::vector<Outcome> reduce_on_threads(const ReduceCase& setup) {
  std::vector<Outcome> outcomes(static_cast<size_t>(setup.replicas));
  run_ranks(setup.replicas, [&](RankContext& rank) {
    outcomes[static_cast<size_t>(rank.rank)] = reduce(setup, rank.world, DeviceKind::kCpu);
  });
  return outcomes;
}

/// Returns the result of a reduction in rank order in `T`: the sum of terms that are multiplied first, divided last.
template <class T>
std::vector<double> expected_gradient(const Parameter& parameter, int replicas, double factor, double divisor) {
  TestDevice test;
  const Context ctx = test.context();
  std::vector<T> sum;
  for (int rank = 0; rank < replicas; ++rank) {
    Tensor gradient = ctx.empty("gradient", parameter.shape(), dtype_of<T>());
    fill_uniform(ctx, gradient, fmt::format("{} of {}", parameter.name(), rank));
    const std::vector<double> values = values_of(gradient);
    sum.resize(values.size());
    for (size_t i = 0; i < sum.size(); ++i) {
      const T term = has_gradient(parameter, rank) ? static_cast<T>(values[i]) * static_cast<T>(factor) : T(0);
      sum[i] = rank == 0 ? term : sum[i] + term;
    }
  }
  std::vector<double> result;
  for (T value : sum) result.push_back(static_cast<double>(value / static_cast<T>(divisor)));
  return result;
}

void expect_gradients(const ReduceCase& setup, double factor, double divisor) {
  TestDevice test;
  const Parameters parameters(test.context(), setup.dtype);
  for (const Outcome& out : reduce_on_threads(setup))
    for (const Parameter* parameter : parameters.all()) {
      const std::string key = parameter->name() + " from 0";
      EXPECT_EQ(out.gradients.contains(key), parameter->is_trainable()) << key;
      if (!parameter->is_trainable()) continue;
      EXPECT_EQ(out.gradients.at(key), setup.dtype == DType::kFloat64
                                           ? expected_gradient<double>(*parameter, setup.replicas, factor, divisor)
                                           : expected_gradient<float>(*parameter, setup.replicas, factor, divisor))
          << key;
    }
}

TEST(DistributedDataParallel, GradientsAreSumsInRankOrder) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64})
    for (const int replicas : {1, 2, 3}) expect_gradients({.replicas = replicas, .dtype = dtype}, 1, 1);
}

TEST(DistributedDataParallel, GradientsAreMeansOverReplicasWithoutPerTokenLoss) {
  expect_gradients({.config = {.calculate_per_token_loss = false}}, 1.0 / 3, 1);
  expect_gradients({.config = {.calculate_per_token_loss = false, .average_in_collective = true}}, 1, 3);
}

TEST(DistributedDataParallel, NeitherBucketsNorOverlapChangeABit) {
  for (const int replicas : {2, 3}) {
    const std::vector<Outcome> plain = reduce_on_threads({.replicas = replicas});
    for (const bool overlap : {false, true})
      for (const int64_t bucket_size : {1, 64, 150, 100000}) {
        const ReduceCase setup{.replicas = replicas,
                               .config = {.overlap_grad_reduce = overlap, .bucket_size = bucket_size}};
        const std::vector<Outcome> other = reduce_on_threads(setup);
        for (size_t rank = 0; rank < plain.size(); ++rank) EXPECT_EQ(plain[rank].gradients, other[rank].gradients);
      }
  }
}

/// Values of the owned ranges of all ranks put together, by parameter.
std::map<std::string, std::vector<double>> joined(const std::vector<Outcome>& outcomes) {
  std::map<std::string, std::map<int64_t, std::vector<double>>> parts;
  for (const Outcome& out : outcomes)
    for (const auto& [key, values] : out.gradients) {
      const size_t space = key.find(" from ");
      parts[key.substr(0, space)][std::stoll(key.substr(space + 6))] = values;
    }
  std::map<std::string, std::vector<double>> whole;
  for (const auto& [name, by_begin] : parts)
    for (const auto& [begin, values] : by_begin) {
      EXPECT_EQ(static_cast<int64_t>(whole[name].size()), begin) << name << ": ranges leave no gap";
      whole[name].insert(whole[name].end(), values.begin(), values.end());
    }
  return whole;
}

TEST(DistributedDataParallel, ShardsOfTheDistributedOptimizerHaveTheBitsOfTheWhole) {
  for (const int replicas : {1, 2, 3}) {
    const Outcome plain = reduce_on_threads({.replicas = replicas}).at(0);
    for (const bool overlap : {false, true})
      for (const int64_t bucket_size : {1, 150, 100000}) {
        const std::vector<Outcome> sharded = reduce_on_threads(
            {.replicas = replicas,
             .config = {
                 .overlap_grad_reduce = overlap, .use_distributed_optimizer = true, .bucket_size = bucket_size}});
        const auto whole = joined(sharded);
        EXPECT_EQ(whole.size(), plain.gradients.size());
        for (const auto& [name, values] : whole) EXPECT_EQ(values, plain.gradients.at(name + " from 0")) << name;
        for (const Outcome& out : sharded) EXPECT_EQ(out.weights, plain.weights) << "weights survive their move";
      }
  }
}

TEST(DistributedDataParallel, InstancesSumOverAllReplicas) {
  const ReduceCase setup{.replicas = 4,
                         .config = {.overlap_grad_reduce = true,
                                    .use_distributed_optimizer = true,
                                    .bucket_size = 100,
                                    .num_distributed_optimizer_instances = 2},
                         .dtype = DType::kFloat64};
  const std::vector<Outcome> ranks = reduce_on_threads(setup);
  const Outcome plain = reduce_on_threads({.replicas = 4, .dtype = DType::kFloat64}).at(0);
  for (const size_t first : {0U, 2U})
    for (const auto& [name, values] : joined({ranks[first], ranks[first + 1]})) {
      const std::vector<double>& expected = plain.gradients.at(name + " from 0");
      ASSERT_EQ(values.size(), expected.size());
      for (size_t i = 0; i < values.size(); ++i)  // four terms in another order
        EXPECT_NEAR(values[i], expected[i], 4 * 4 * epsilon(DType::kFloat64)) << name;
    }
  EXPECT_EQ(ranks[0].gradients, ranks[2].gradients) << "instances agree to the bit";
}

TEST(DistributedDataParallel, BucketsStartInOneOrderWhateverOrderTheyFillIn) {
  const std::vector<Outcome> ranks = reduce_on_threads({.config = {.overlap_grad_reduce = true, .bucket_size = 64}});
  for (const Outcome& out : ranks) EXPECT_EQ(out.calls, ranks[0].calls);
  EXPECT_GT(ranks[0].calls.size(), 6U);
}

TEST(DistributedDataParallel, LaterChunksStartFirstAndInOneGroup) {
  std::vector<std::string> calls;
  run_ranks(2, [&](RankContext& rank) {
    TestDevice test;
    const Context ctx = test.context();
    const Parameters first(ctx), second(ctx);
    DistributedDataParallel ddp(ctx, {first.all(), second.all()},
                                ProcessGroupCollection::make(rank.world, ParallelLayout({.world_size = 2})),
                                {.overlap_grad_reduce = true, .bucket_size = 64});
    const int64_t begin = rank.world.recorder().num_operations();
    ddp.begin_step();
    for (const Parameters* chunk : {&first, &second}) write_gradients(ctx, *chunk, rank.rank, false);
    ddp.finish_grad_sync();
    if (rank.rank == 0) calls = operation_lines_since(rank.world.recorder(), begin);
  });
  EXPECT_THAT(calls,
              ::testing::ElementsAre("all_reduce grads of bucket 0 924",  // all of the second chunk, fp32
                                     "all_reduce grads of bucket 0 640",  // and bf16
                                     "all_reduce grads of bucket 1 300",  // "cube", of the first chunk as all others
                                     "all_reduce grads of bucket 2 260",  // "scalar" and "unused"
                                     "all_reduce grads of bucket 3 640",  // norms
                                     "all_reduce grads of bucket 4 364"))
      << "the first parameter is the last to be ready";
}

TEST(DistributedDataParallel, OverlapStartsABucketWithItsLastGradient) {
  const ReduceCase setup{
      .replicas = 2, .config = {.overlap_grad_reduce = true, .bucket_size = 64}, .same_fill_order = true};
  const std::vector<Outcome> ranks = reduce_on_threads(setup);
  const auto num_buckets = static_cast<int64_t>(ranks[0].calls.size()) / 2;  // of two steps
  EXPECT_EQ(ranks[0].calls_before_finish, num_buckets) << "rank 0 has all gradients before the end of the step";
  EXPECT_GT(ranks[1].calls_before_finish, 0);
  EXPECT_LT(ranks[1].calls_before_finish, num_buckets) << "its unused parameter is ready at the end only";
  ReduceCase late = setup;
  late.config.overlap_grad_reduce = false;
  EXPECT_EQ(reduce_on_threads(late)[0].calls_before_finish, 0);
}

TEST(DistributedDataParallel, MovesTheBytesOfTheClosedForm) {
  // fp32: 91 + 64 + 1 + 75 elements; bf16, summed in fp32 and gathered in bf16: 129 + 31.
  const std::vector<std::string> plain = reduce_on_threads({.replicas = 2})[0].calls;
  EXPECT_THAT(plain, ::testing::ElementsAre("all_reduce grads of bucket 0 640", "all_reduce grads of bucket 1 924",
                                            "all_reduce grads of bucket 0 640", "all_reduce grads of bucket 1 924"));
  // From multiples of 64 on: fp32 0-75, 128-129, 192-256, 256-347; bf16 0-31, 64-193; padded to multiples of 384.
  const std::vector<std::string> sharded =
      reduce_on_threads({.replicas = 3, .config = {.use_distributed_optimizer = true}})[0].calls;
  EXPECT_THAT(sharded,
              ::testing::ElementsAre("reduce_scatter grads of bucket 0 1536", "reduce_scatter grads of bucket 1 1536",
                                     "reduce_scatter grads of bucket 0 1536", "reduce_scatter grads of bucket 1 1536",
                                     "all_gather params of bucket 1 512", "all_gather params of bucket 0 256"));
}

TEST(DistributedDataParallel, MetaRunHasTheLogAndTheMessagesOfTheRealRun) {
  for (const bool distributed : {false, true}) {
    const ReduceCase setup{.replicas = 3,
                           .config = {.overlap_grad_reduce = true,
                                      .use_distributed_optimizer = distributed,
                                      .calculate_per_token_loss = false,
                                      .bucket_size = 100}};
    const std::vector<Outcome> real = reduce_on_threads(setup);
    for (int rank = 0; rank < setup.replicas; ++rank) {
      MetaWorld world(rank, setup.replicas);
      const Outcome meta = reduce(setup, world, DeviceKind::kMeta);
      EXPECT_EQ(meta.events, real[static_cast<size_t>(rank)].events);
      EXPECT_EQ(meta.calls, real[static_cast<size_t>(rank)].calls);
    }
  }
}

/// If weights were there twice, the block in their first place has the size of no gradient.
TEST(DistributedDataParallel, WeightsThatNobodyHasSetAreThereOnce) {
  for (const bool is_set : {false, true})
    run_ranks(2, [&](RankContext& rank) {
      TestDevice test(DeviceKind::kCpu, 1);
      const Context ctx = test.context();
      const ProcessGroupCollection groups = ProcessGroupCollection::make(rank.world, ParallelLayout({.world_size = 2}));
      std::vector<std::unique_ptr<Parameter>> own;
      std::vector<Parameter*> all;
      int64_t bytes = 0;
      for (const int64_t rows : {1000, 3000, 2000}) {
        own.push_back(std::make_unique<Parameter>(
            ctx, ParameterOptions{.name = std::to_string(rows), .shard = ShardSpec::whole({rows, 8})}));
        all.push_back(own.back().get());
        if (is_set) fill_uniform(ctx, own.back()->value(), own.back()->name());
        bytes += rows * 8 * 4;
      }
      own.push_back(std::make_unique<Parameter>(
          ctx, ParameterOptions{.name = "frozen", .shard = ShardSpec::whole({10}), .is_trainable = false}));
      all.push_back(own.back().get());
      const DistributedDataParallel ddp(ctx, {all}, groups, {.use_distributed_optimizer = true});
      const int64_t peak = test.device.arena.amount(MemoryUse::kWeights).peak;
      EXPECT_GE(peak, is_set ? 2 * bytes : bytes);
      EXPECT_LE(peak, (is_set ? 2 * bytes : bytes) + 4096);
      for (Parameter* parameter : all) {
        ASSERT_NE(std::as_const(*parameter).value().view().data, nullptr) << parameter->name();
        Tensor expected = ctx.empty_like("expected", std::as_const(*parameter).value());
        fill_uniform(ctx, expected, parameter->name());
        if (!is_set || !parameter->is_trainable()) continue;
        EXPECT_EQ(values_of(std::as_const(*parameter).value()), values_of(expected));
      }
    });
}

TEST(DistributedDataParallel, FinishingOutOfOrderIsRefusedAndSaysWhatIsMissing) {
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  TestDevice test;
  const Context ctx = test.context();
  const Parameters parameters(ctx);
  DistributedDataParallel ddp(ctx, {parameters.all()}, ProcessGroupCollection::single(), {.bucket_size = 64});
  const auto finish = [&] { ddp.finish_grad_sync(); };
  EXPECT_THAT(finish, ThrowsMessage<InternalError>(HasSubstr("without a begin_step"))) << "the first step";
  ddp.begin_step();
  EXPECT_NO_THROW(finish());
  EXPECT_THAT(finish, ThrowsMessage<InternalError>(HasSubstr("without a begin_step"))) << "twice";
  Parameter& norm = *parameters.own[1];
  ddp.begin_step();
  norm.add_use();  // a forward whose backward is still to come
  EXPECT_THAT(finish, ThrowsMessage<InternalError>(HasSubstr("norm has 1 uses without W")));
  ddp.begin_step();
  const auto before = std::exchange(norm.on_ready, [](Parameter&) {});
  EXPECT_THAT(finish, ThrowsMessage<InternalError>(HasSubstr("bucket groups are not ready")));
  norm.on_ready = before;
  ddp.begin_step();
  EXPECT_NO_THROW(finish()) << "after mistakes a step can begin anew";
}

TEST(DistributedDataParallel, RefusesWhatDoesNotFit) {
  TestDevice test;
  const Context ctx = test.context();
  const Parameters parameters(ctx);
  const auto make = [&](const std::vector<std::vector<Parameter*>>& chunks,
                        const DistributedDataParallelConfig& config) {
    DistributedDataParallel(ctx, chunks, ProcessGroupCollection::single(), config);
  };
  EXPECT_THROW(make({parameters.all(), parameters.all()}, {}), ConfigError);
  EXPECT_THROW(make({parameters.all()}, {.average_in_collective = true}), ConfigError);
  EXPECT_THROW(make({parameters.all()}, {.num_distributed_optimizer_instances = 2}), ConfigError);
  EXPECT_NO_THROW(make({parameters.all()}, {}));
}

}  // namespace
}  // namespace megatron::testing
