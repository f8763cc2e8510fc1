// Gradients get further sums beside the data-parallel one.
#include "megatron/distributed/finalize_model_grads.h"

#include <gtest/gtest.h>

#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

/// The copy of one of several pipeline ranks.
std::unique_ptr<Parameter> make_copy(const Context& ctx, const RankContext& rank, bool is_trainable) {
  return std::make_unique<Parameter>(
      ctx, ParameterOptions{.name = "embedding.word_embeddings.weight",
                            .shard = ShardSpec::whole({3, 5}),
                            .tied = {.group = "word_embeddings", .holder = rank.rank, .num_holders = rank.size},
                            .is_trainable = is_trainable});
}

Tensor gradient_of(const Context& ctx, int rank) {
  Tensor gradient = ctx.empty("gradient", {3, 5}, DType::kFloat32);
  fill_uniform(ctx, gradient, fmt::format("rank {}", rank));
  return gradient;
}

TEST(TiedGradient, IsTheSumOfAllCopiesHoweverManyRanksHoldOne) {
  for (const int num_holders : {2, 3, 4})
    run_ranks(num_holders, [&](const RankContext& rank) {
      TestDevice device;
      const Context ctx = device.context();
      const auto copy = make_copy(ctx, rank, true);
      std::vector<float> expected(15);
      for (int other = 0; other < num_holders; ++other) {
        const std::vector<double> values = values_of(gradient_of(ctx, other));
        for (size_t i = 0; i < values.size(); ++i) expected[i] += static_cast<float>(values[i]);
      }
      copy->set_main_grad(gradient_of(ctx, rank.rank));
      ProcessGroupCollection groups;
      groups.embd = rank.group;
      Parameter* parameters[] = {copy.get()};
      all_reduce_tied_grads(parameters, groups);
      const std::vector<double> sum = values_of(copy->main_grad());
      for (size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], static_cast<double>(expected[i]));
    });
}

TEST(TiedGradient, OfAFrozenEmbeddingIsLeftOut) {
  run_ranks(2, [](const RankContext& rank) {
    TestDevice device;
    const auto copy = make_copy(device.context(), rank, false);
    ProcessGroupCollection groups;
    groups.embd = rank.group;
    Parameter* parameters[] = {copy.get()};
    all_reduce_tied_grads(parameters, groups);
    EXPECT_FALSE(copy->main_grad().defined());
  });
}

TEST(TiedGradient, IsRefusedWhereTheGroupHasOtherRanksThanTheHolders) {
  run_ranks(2, [](const RankContext& rank) {
    TestDevice device;
    const Context ctx = device.context();
    const auto copy = make_copy(ctx, rank, true);
    copy->set_main_grad(gradient_of(ctx, 0));
    Parameter* parameters[] = {copy.get()};
    EXPECT_THROW(all_reduce_tied_grads(parameters, ProcessGroupCollection::single()), InternalError);
  });
}

}  // namespace
}  // namespace megatron::testing
