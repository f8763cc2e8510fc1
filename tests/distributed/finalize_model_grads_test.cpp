// What gradients get beside the data-parallel sum.
#include "megatron/distributed/finalize_model_grads.h"

#include <gtest/gtest.h>

#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

std::unique_ptr<Parameter> make_table(const Context& ctx, bool is_trainable) {
  return std::make_unique<Parameter>(ctx, ParameterOptions{.name = "embedding.word_embeddings.weight",
                                                           .shard = ShardSpec::whole({3, 5}),
                                                           .is_trainable = is_trainable});
}

TEST(TiedGradient, IsTheSumOfBothCopies) {
  run_ranks(2, [](const RankContext& rank) {
    TestDevice device;
    const Context ctx = device.context();
    const auto table = make_table(ctx, true);
    Tensor gradient = ctx.empty("gradient", {3, 5}, DType::kFloat32);
    fill_uniform(ctx, gradient, rank.rank == 0 ? "lookup" : "logits");
    Tensor other = ctx.empty("other", {3, 5}, DType::kFloat32);
    fill_uniform(ctx, other, rank.rank == 0 ? "logits" : "lookup");
    table->set_main_grad(gradient);
    const std::vector<double> own = values_of(gradient), theirs = values_of(other);
    all_reduce_tied_grad(*table, rank.group);
    const std::vector<double> sum = values_of(table->main_grad());
    for (size_t i = 0; i < sum.size(); ++i)
      EXPECT_EQ(sum[i], static_cast<double>(static_cast<float>(own[i]) + static_cast<float>(theirs[i])));
  });
}

TEST(TiedGradient, OfAFrozenEmbeddingIsLeftOut) {
  run_ranks(2, [](const RankContext& rank) {
    TestDevice device;
    const auto table = make_table(device.context(), false);
    all_reduce_tied_grad(*table, rank.group);
    EXPECT_FALSE(table->main_grad().defined());
  });
}

}  // namespace
}  // namespace megatron::testing
