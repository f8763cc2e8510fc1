#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatron/comm/meta/meta_world.h"
#include "tests/optimizer/replica_training.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

DistributedDataParallelConfig sharded(int64_t bucket_size, bool overlap = true) {
  return {.overlap_grad_reduce = overlap, .use_distributed_optimizer = true, .bucket_size = bucket_size};
}

void expect_same_bits(const std::vector<ReplicaOutcome>& expected, const std::vector<ReplicaOutcome>& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    EXPECT_EQ(expected[rank].losses, actual[rank].losses);
    EXPECT_TRUE(expected[rank].weights == actual[rank].weights);
    EXPECT_EQ(expected[rank].params_norm, actual[rank].params_norm);
    for (size_t step = 0; step < expected[rank].results.size(); ++step) {
      EXPECT_EQ(expected[rank].results[step].success, actual[rank].results[step].success);
      EXPECT_EQ(expected[rank].results[step].grad_norm, actual[rank].results[step].grad_norm);
      EXPECT_EQ(expected[rank].results[step].num_zeros, actual[rank].results[step].num_zeros);
    }
  }
}

double largest_difference(const std::map<std::string, std::vector<double>>& a,
                          const std::map<std::string, std::vector<double>>& b) {
  double largest = a.size() == b.size() ? 0 : HUGE_VAL;
  for (const auto& [name, values] : a)
    for (size_t i = 0; i < values.size(); ++i) largest = std::max(largest, std::abs(values[i] - b.at(name)[i]));
  return largest;
}

/// Elements whose gradients are not 0 but rounding alone, which in another order of addition may be 0.
int64_t num_roundings(const ReplicaOutcome& one, double bound) {
  int64_t count = 0;
  for (const auto& [name, values] : join_states({one}, 0, 1))
    if (name.starts_with("exp_avg of "))
      count += std::ranges::count_if(values, [&](double x) { return x != 0 && std::abs(x) <= bound; });
  return count;
}

OptimizerConfig clipping() {
  OptimizerConfig config;
  config.clip_grad = 1e-3;  // far below the norm, so that each gradient is scaled by it
  config.log_num_zeros_in_grad = true;
  return config;
}

/// Adam divides a gradient by its own size: one that is rounding alone would move its weight by lr. With epsilon = lr a
/// weight errs by no more than its gradient.
OptimizerConfig well_conditioned() {
  OptimizerConfig config = clipping();
  config.adam_eps = 1e-2;
  return config;
}

TEST(DistributedOptimizer, ReplicasTrainAsOneRankDoes) {
  for (const bool per_token : {true, false}) {
    ReplicaTraining training{.ddp = {.calculate_per_token_loss = per_token}, .optimizer = well_conditioned()};
    const ReplicaOutcome one = train_replicas(training)[0];
    for (const int replicas : {2, 3, 6})
      for (const bool average : {false, true}) {
        if (average && per_token) continue;
        training.replicas = replicas;
        training.ddp.average_in_collective = average;
        const std::vector<ReplicaOutcome> ranks = train_replicas(training);
        const double bound = tolerance(DType::kFloat64, 10000);
        for (size_t step = 0; step < one.losses.size(); ++step) {
          double loss = 0;
          for (const ReplicaOutcome& rank : ranks) loss += rank.losses[step];
          EXPECT_NEAR(loss / (per_token ? 1 : replicas), one.losses[step], bound);
          EXPECT_NEAR(ranks[0].results[step].grad_norm, one.results[step].grad_norm, bound);
          EXPECT_NEAR(static_cast<double>(ranks[0].results[step].num_zeros.value()),
                      static_cast<double>(one.results[step].num_zeros.value()),
                      static_cast<double>(num_roundings(one, bound)));
        }
        EXPECT_LE(largest_difference(one.weights, ranks[0].weights), bound);
        for (const ReplicaOutcome& rank : ranks) EXPECT_TRUE(rank.weights == ranks[0].weights);
      }
  }
}

TEST(DistributedOptimizer, ShardsGiveTheBitsOfWholeParameters) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16})
    for (const int replicas : {1, 2, 3}) {
      const ReplicaTraining whole{.replicas = replicas, .dtype = dtype, .optimizer = clipping()};
      const std::vector<ReplicaOutcome> expected = train_replicas(whole);
      for (const int64_t bucket_size : {1, 100, 100000}) {
        ReplicaTraining training = whole;
        training.ddp = sharded(bucket_size);
        training.optimizer.overlap_param_gather = true;
        const std::vector<ReplicaOutcome> ranks = train_replicas(training);
        expect_same_bits(expected, ranks);
        EXPECT_TRUE(join_states(expected, 0, 1) == join_states(ranks, 0, ranks.size()));
      }
    }
}

/// Roundings of weights and second moments belong to elements, not to what a rank owns of them.
TEST(DistributedOptimizer, ShardsOfBf16MainParamsGiveTheBitsOfWholeParameters) {
  for (const MainParamsDType main : {MainParamsDType::kBFloat16, MainParamsDType::kFloat32})
    for (const int replicas : {1, 2, 3}) {
      ReplicaTraining training{.replicas = replicas, .dtype = DType::kBFloat16, .optimizer = clipping()};
      training.optimizer.use_precision_aware_optimizer = true;
      training.optimizer.main_params_dtype = main;
      training.optimizer.exp_avg_dtype = training.optimizer.exp_avg_sq_dtype = StateDType::kBFloat16;
      training.ddp.grad_reduce_in_fp32 = false;
      const std::vector<ReplicaOutcome> expected = train_replicas(training);
      for (const int64_t bucket_size : {1, 100, 100000}) {
        training.ddp = sharded(bucket_size);
        training.ddp.grad_reduce_in_fp32 = false;
        const std::vector<ReplicaOutcome> ranks = train_replicas(training);
        expect_same_bits(expected, ranks);
        EXPECT_TRUE(join_states(expected, 0, 1) == join_states(ranks, 0, ranks.size()));
      }
    }
}

TEST(DistributedOptimizer, ShardsOfMomentumGiveTheBitsOfWholeParameters) {
  for (const double momentum : {0.0, 0.9}) {
    ReplicaTraining training{.replicas = 3, .optimizer = clipping()};
    training.optimizer.optimizer = OptimizerType::kSgd;
    training.optimizer.sgd_momentum = momentum;
    const std::vector<ReplicaOutcome> expected = train_replicas(training);
    training.ddp = sharded(100);
    expect_same_bits(expected, train_replicas(training));
  }
}

TEST(DistributedOptimizer, NeitherBucketsNorOverlapNorRecomputeChangeABit) {
  const ReplicaTraining plain{.replicas = 3, .dtype = DType::kFloat32, .optimizer = clipping()};
  const std::vector<ReplicaOutcome> expected = train_replicas(plain);
  for (const bool distributed : {false, true})
    for (const bool overlap : {false, true})
      for (const int64_t bucket_size : {1, 77, 100000}) {
        ReplicaTraining training = plain;
        training.ddp = sharded(bucket_size, overlap);
        training.ddp.use_distributed_optimizer = distributed;
        training.recompute = bucket_size == 77;
        expect_same_bits(expected, train_replicas(training));
      }
}

TEST(DistributedOptimizer, WeightsGatheredInTheNextStepHaveTheSameBits) {
  ReplicaTraining training{.replicas = 3, .dtype = DType::kFloat32, .ddp = sharded(77, true), .optimizer = clipping()};
  training.optimizer.overlap_param_gather = true;
  const std::vector<ReplicaOutcome> expected = train_replicas(training);
  training.ddp.gather_params_in_step = true;
  expect_same_bits(expected, train_replicas(training));
}

TEST(DistributedOptimizer, GradientsInBf16TrainAlmostAsThoseInFp32) {
  ReplicaTraining training{.replicas = 2, .dtype = DType::kBFloat16, .optimizer = well_conditioned()};
  const std::vector<ReplicaOutcome> expected = train_replicas(training);
  training.ddp.grad_reduce_in_fp32 = false;
  const std::vector<ReplicaOutcome> ranks = train_replicas(training);
  EXPECT_FALSE(ranks[0].weights == expected[0].weights);
  for (size_t step = 0; step < ranks[0].results.size(); ++step)
    EXPECT_NEAR(ranks[0].results[step].grad_norm / expected[0].results[step].grad_norm, 1,
                tolerance(DType::kBFloat16, training.num_micro_batches));
  training.ddp = sharded(100);
  training.ddp.grad_reduce_in_fp32 = false;
  expect_same_bits(ranks, train_replicas(training));
}

TEST(DistributedOptimizer, AParameterThatOneRankNeverUsesIsStepped) {
  // With one micro-batch a rank, replica 2 of 3 skips the last expert, whose weights are then ready in its forward.
  ReplicaTraining training{.num_micro_batches = 3, .optimizer = well_conditioned()};
  const ReplicaOutcome one = train_replicas(training)[0];
  training.replicas = 3;
  for (const int64_t bucket_size : {1, 100}) {
    training.ddp = sharded(bucket_size);
    const std::vector<ReplicaOutcome> ranks = train_replicas(training);
    EXPECT_LE(largest_difference(one.weights, ranks[2].weights), tolerance(DType::kFloat64, 10000));
  }
}

TEST(DistributedOptimizer, StateIsSplitEvenlyAndBelongsToOneRankEach) {
  const int64_t whole = train_replicas({})[0].state_elements;
  const std::vector<ReplicaOutcome> ranks = train_replicas({.replicas = 3, .ddp = sharded(100000)});
  int64_t sum = 0;
  for (const ReplicaOutcome& rank : ranks) sum += rank.state_elements;
  EXPECT_EQ(sum, whole);
  for (const ReplicaOutcome& rank : ranks) EXPECT_LT(rank.state_elements, whole / 2);
}

TEST(DistributedOptimizer, InstancesHoldWholeStatesAndAgree) {
  ReplicaTraining training{.replicas = 4, .num_micro_batches = 8, .optimizer = well_conditioned()};
  const std::vector<ReplicaOutcome> plain = train_replicas(training);
  training.ddp = sharded(100);
  training.ddp.num_distributed_optimizer_instances = 2;
  const std::vector<ReplicaOutcome> ranks = train_replicas(training);
  EXPECT_TRUE(join_states(ranks, 0, 2) == join_states(ranks, 2, 2));
  for (const ReplicaOutcome& rank : ranks) EXPECT_TRUE(rank.weights == ranks[0].weights);
  EXPECT_LE(largest_difference(plain[0].weights, ranks[0].weights), tolerance(DType::kFloat64, 10000));
}

TEST(DistributedOptimizer, OverflowOnOneRankSkipsTheStepOnAll) {
  for (const bool distributed : {false, true}) {
    ReplicaTraining training{.replicas = 3, .num_steps = 1, .dtype = DType::kFloat16};
    training.optimizer.initial_loss_scale = 128;
    training.optimizer.hysteresis = 1;
    training.ddp = sharded(100);
    training.ddp.use_distributed_optimizer = distributed;
    const std::vector<ReplicaOutcome> before = train_replicas(training);
    training.num_steps = 2;
    training.overflow_rank = training.overflow_step = 1;
    for (const ReplicaOutcome& rank : train_replicas(training)) {
      EXPECT_TRUE(rank.results[0].success);
      EXPECT_FALSE(rank.results[1].success);
      EXPECT_EQ(rank.loss_scale, 64);
      EXPECT_TRUE(rank.weights == before[0].weights) << "a skipped step changes nothing";
    }
    training.num_steps = 3;
    for (const ReplicaOutcome& rank : train_replicas(training)) EXPECT_TRUE(rank.results[2].success);
  }
}

TEST(DistributedOptimizer, AnExtentThatOverflowsOnOneRankSkipsTheStepOnAllAndKeepsTheLossScale) {
  for (const DType dtype : {DType::kFloat16, DType::kFloat64}) {
    ReplicaTraining training{.replicas = 3, .num_steps = 1, .dtype = dtype, .extent_overflows = true};
    training.optimizer.initial_loss_scale = 128;
    training.optimizer.hysteresis = 1;
    training.ddp = sharded(100);
    const std::vector<ReplicaOutcome> before = train_replicas(training);
    training.num_steps = 2;
    training.overflow_rank = training.overflow_step = 1;
    for (const ReplicaOutcome& rank : train_replicas(training)) {
      EXPECT_TRUE(rank.results[0].success);
      EXPECT_FALSE(rank.results[0].overflow);
      EXPECT_FALSE(rank.results[1].success);
      EXPECT_TRUE(rank.results[1].overflow);
      EXPECT_TRUE(std::isfinite(rank.results[1].grad_norm));
      EXPECT_EQ(rank.loss_scale, before[0].loss_scale) << "gradients were finite";
      EXPECT_TRUE(rank.weights == before[0].weights) << "a skipped step changes nothing";
    }
    training.num_steps = 3;
    for (const ReplicaOutcome& rank : train_replicas(training)) EXPECT_TRUE(rank.results[2].success);
  }
}

TEST(DistributedOptimizer, MetaRunHasTheLogAndTheMessagesOfTheRealRun) {
  for (const bool distributed : {false, true}) {
    ReplicaTraining training{.replicas = 3, .dtype = DType::kBFloat16, .optimizer = clipping()};
    training.ddp = sharded(100);
    training.ddp.use_distributed_optimizer = distributed;
    training.optimizer.overlap_param_gather = distributed;
    const std::vector<ReplicaOutcome> real = train_replicas(training);
    for (int rank = 0; rank < training.replicas; ++rank) {
      MetaWorld world(rank, training.replicas);
      const ReplicaOutcome meta = train_replica(training, world, DeviceKind::kMeta);
      EXPECT_EQ(meta.events, real[static_cast<size_t>(rank)].events);
      EXPECT_EQ(meta.calls, real[static_cast<size_t>(rank)].calls);
      EXPECT_EQ(meta.live_bytes, 0);
    }
  }
}

}  // namespace
}  // namespace megatron::testing
