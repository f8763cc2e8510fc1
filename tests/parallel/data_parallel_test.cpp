// Data-parallel ranks against one rank.
#include <gtest/gtest.h>

#include "tests/parallel/layout_run.h"
#include "tests/testing/tolerance.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

const std::string kDouble = " --fp64 --lr 1e-3 --num-layers 2 --global-batch-size 12 --micro-batch-size ";

TEST(DataParallel, GivesTheLossAndTheGradientNormOfOneRank) {
  for (const std::string& model : {gpt2_like(), llama_like()}) {
    const Curve one = train_layout(model + kDouble + "2", 1, 10);
    for (const int num_ranks : {2, 3})
      for (const std::string size : {"1", "2"})
        expect_same_curve(train_layout(model + kDouble + size, num_ranks, 10), one,
                          fmt::format("{} ranks, micro-batches of {}", num_ranks, size));
  }
}

TEST(DataParallel, MeanOfMicroBatchMeansIsThatOfOneRankWithTheSameMicroBatches) {
  const std::string words = gpt2_like(kDouble + "2 --no-calculate-per-token-loss");
  const Curve one = train_layout(words, 1, 5);
  for (const int num_ranks : {2, 3, 6})
    expect_same_curve(train_layout(words, num_ranks, 5), one, fmt::format("{} ranks", num_ranks));
}

TEST(DataParallel, ShardsBucketsAndOverlapChangeNoBit) {
  for (const std::string& model : {gpt2_like("--global-batch-size 12 --lr 1e-2 --clip-grad 0.1"),
                                   llama_like("--global-batch-size 12 --lr 1e-2 --bf16 --clip-grad 0.1")})
    for (const int num_ranks : {2, 3}) {
      const Curve plain = train_layout(model, num_ranks, 5);
      for (const std::string words :
           {" --overlap-grad-reduce --ddp-bucket-size 1000", " --use-distributed-optimizer",
            " --use-distributed-optimizer --overlap-grad-reduce --ddp-num-buckets 7",
            " --use-distributed-optimizer --ddp-pad-buckets-for-high-nccl-busbw",
            " --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 3000"})
        EXPECT_EQ(train_layout(model + words, num_ranks, 5), plain) << num_ranks << " ranks," << words;
    }
}

TEST(DataParallel, OptimizerInstancesDifferByRoundingAlone) {
  const std::string words = llama_like(kDouble + "1 --use-distributed-optimizer");
  expect_same_curve(train_layout(words + " --num-distributed-optimizer-instances 2", 4, 10), train_layout(words, 1, 10),
                    "two instances of two ranks");
}

TEST(DataParallel, GradientsInBf16FollowThoseInFp32) {
  for (const std::string& model :
       {gpt2_like("--bf16 --global-batch-size 12 --lr 1e-3"), llama_like("--bf16 --global-batch-size 12 --lr 1e-3")}) {
    const Curve expected = train_layout(model, 2, 5), actual = train_layout(model + " --grad-reduce-in-bf16", 2, 5);
    EXPECT_NE(actual, expected);
    for (size_t step = 0; step < expected.losses.size(); ++step) {
      // A sum of 3 micro-batches and 2 ranks, rounded to bf16 each time, under a norm of many elements.
      EXPECT_NEAR(actual.grad_norms[step] / expected.grad_norms[step], 1, tolerance(DType::kBFloat16, 5));
      EXPECT_NEAR(actual.losses[step] / expected.losses[step], 1, tolerance(DType::kBFloat16));
    }
    EXPECT_EQ(train_layout(model + " --grad-reduce-in-bf16 --use-distributed-optimizer", 2, 5), actual);
  }
}

TEST(DataParallel, ReplicasStayEqualBitForBit) {
  std::vector<std::vector<double>> weights(3);
  run_layout(llama_like("--bf16 --global-batch-size 6"), 3, [&](Trainer& trainer) {
    train(trainer, 0, 5);
    weights[static_cast<size_t>(trainer.groups().world.rank())] = weights_of(trainer);
  });
  EXPECT_EQ(weights[1], weights[0]);
  EXPECT_EQ(weights[2], weights[0]);
}

TEST(DataParallel, CountsTheSamplesOfAllRanks) {
  run_layout(gpt2_like("--global-batch-size 12"), 3, [](Trainer& trainer) {
    train(trainer, 0, 2);
    EXPECT_EQ(trainer.progress().consumed_train_samples, 24);
    EXPECT_EQ(trainer.scheduler().num_steps(), 24);
  });
}

TEST(DataParallel, EvaluationIsTheSumOfTheRanks) {
  const std::string words = gpt2_like("--fp64 --micro-batch-size 1 --global-batch-size 6");
  Trainer one(small_config(words), {});
  const LossSum expected = one.evaluate(batches_of(one.config(), 3));
  run_layout(words, 3, [&](Trainer& trainer) {
    const LossSum own = trainer.evaluate(batches_of(trainer.config(), 3, trainer.groups().dp.rank()));
    EXPECT_LT(own.num_tokens, expected.num_tokens);
    const LossSum all = sum_of_all_ranks(own, trainer.groups());
    EXPECT_EQ(all.num_tokens, expected.num_tokens);
    EXPECT_NEAR(all.sum, expected.sum, 1e-11 * expected.sum);
  });
}

TEST(DataParallel, AnOverflowSkipsTheStepOnAllRanks) {
  run_layout(gpt2_like("--fp16 --initial-loss-scale 4294967296 --global-batch-size 6 --micro-batch-size 1"), 3,
             [](Trainer& trainer) {
               const std::vector<double> before = weights_of(trainer);
               const auto batches = batches_of(trainer.config(), 0, trainer.groups().dp.rank());
               EXPECT_FALSE(trainer.train_step(batches).optimizer.success);
               EXPECT_EQ(weights_of(trainer), before);
             });
}

}  // namespace
}  // namespace megatron::testing
