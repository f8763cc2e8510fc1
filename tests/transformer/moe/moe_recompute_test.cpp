// Parts of a mixture of experts that are computed again, and random factors on the input of its router.
#include <gtest/gtest.h>

#include "tests/transformer/moe/small_moe_layer.h"

namespace megatron::testing {
namespace {

TEST(MoeLayer, PartsThatAreRecomputedGiveTheSameBitsAndAreNotKept) {
  for (const Variant& variant : kVariants)
    for (const bool grouped : {true, false})
      for (const bool within_another : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", variant.name, grouped, within_another));
        const auto layer = [&](std::vector<RecomputeModule> modules) {
          return Layer([&](MoeConfig& moe, TransformerConfig& config) {
            variant.change(moe, config);
            moe.grouped_gemm = grouped;
            config.recompute_granularity = RecomputeGranularity::kSelective;
            config.recompute_modules = std::move(modules);
          });
        };
        Layer plain = layer({}), activation = layer({RecomputeModule::kMoeAct}),
              both = layer({RecomputeModule::kMoeAct, RecomputeModule::kSharedExperts});
        for (Layer* each : {&plain, &activation, &both}) each->run(within_another);
        for (const Layer* each : {&activation, &both}) {
          EXPECT_EQ(each->output, plain.output);
          EXPECT_EQ(each->gradients, plain.gradients);
        }
        if (within_another) continue;
        EXPECT_LT(activation.num_kept, plain.num_kept);
        if (plain.moe.shared_expert_intermediate_size > 0) {
          EXPECT_LT(both.num_kept, activation.num_kept);
        }
      }
}

TEST(MoeLayer, InTrainingAloneTheRouterSeesItsInputWithRandomFactors) {
  Layer plain(kVariants[0].change), jittered([](MoeConfig&m, TransformerConfig&) { m.input_jitter_eps = 0.1; });
  const auto evaluated = [](Layer& layer) {
    Tensor x = layer.ctx.empty("x", {7, 2, 8}, DType::kFloat64);
    layer.fill(x, "x");
    return values_of(layer.layer->forward(layer.ctx, x, {}).output);
  };
  EXPECT_EQ(evaluated(jittered), evaluated(plain));
  for (Layer* layer : {&plain, &jittered}) layer->run();
  EXPECT_NE(jittered.output, plain.output);
  Layer again([](MoeConfig& m, TransformerConfig&) { m.input_jitter_eps = 0.1; });
  again.run(/*with_recompute=*/true);
  EXPECT_EQ(again.output, jittered.output);
  EXPECT_EQ(again.gradients, jittered.gradients);
}

}  // namespace
}  // namespace megatron::testing
