// Routes that a router recorded are taken again, whatever it would choose by itself.
#include <gtest/gtest.h>

#include "tests/transformer/moe/small_moe_layer.h"

namespace megatron::testing {
namespace {

/// The routes of one training pass of a layer, which is run.
std::vector<RecordedRoutes> recorded(Layer& layer, bool with_recompute) {
  layer.layer->router().replay().record();
  layer.run(with_recompute);
  layer.layer->router().replay().stop();
  return layer.layer->router().replay().recorded();
}

void set_groups_and_bias(MoeConfig& m, TransformerConfig&) {
  m.topk.score = kernels::RouterScore::kSigmoid;
  m.topk.num_groups = 3;
  m.topk.group_topk = 2;
  m.enable_expert_bias = true;
}

/// A forward pass of the router in evaluation.
RouterOutput forward(Layer& layer) {
  Tensor x = layer.ctx.empty("x", {7, 2, 8}, DType::kFloat64);
  layer.fill(x, "x");
  return layer.layer->router().forward(layer.ctx, x, {});
}

/// Other logits: each expert has the router weights of the expert before it.
void rotate_router_weights(Layer& layer) {
  Tensor& weight = layer.layer->router().parameters().front()->value();
  std::vector<double> values = values_of(layer.device, weight);
  std::rotate(values.begin(), values.begin() + weight.size(1), values.end());
  write_values<double>(layer.device, values, weight);
}

TEST(RouterReplay, OwnRoutesGiveTheSameBitsWithRecomputeAndWithout) {
  std::vector<Variant> variants(std::begin(kVariants), std::end(kVariants));
  variants.push_back({"groups and bias", set_groups_and_bias});
  for (const Variant& variant : variants)
    for (const bool with_recompute : {false, true}) {
      SCOPED_TRACE(variant.name);
      Layer first(variant.change), second(variant.change);
      const std::vector<RecordedRoutes> routes = recorded(first, with_recompute);
      ASSERT_EQ(routes.size(), 1u);
      EXPECT_EQ(std::ssize(routes[0].experts), 7 * 2 * first.moe.topk.topk);
      second.layer->router().replay().replay(routes);
      second.run(with_recompute);
      EXPECT_EQ(second.output, first.output);
      EXPECT_EQ(second.gradients, first.gradients);
    }
}

TEST(RouterReplay, RoutesOfOtherWeightsAreTaken) {
  Layer recording(set_groups_and_bias);
  const std::vector<RecordedRoutes> routes = recorded(recording, false);
  Layer changed(set_groups_and_bias);
  rotate_router_weights(changed);
  const std::vector<RecordedRoutes> own = recorded(changed, false);
  ASSERT_NE(own, routes);
  Layer replaying(set_groups_and_bias);
  rotate_router_weights(replaying);
  replaying.layer->router().replay().replay(routes);
  const RouterOutput output = forward(replaying);
  const auto map = read_values<uint8_t>(replaying.device, output.routing.map);
  const std::vector<double> probs = values_of(replaying.device, output.routing.probs);
  std::vector<int32_t> taken;
  for (size_t i = 0; i < map.size(); ++i) {
    EXPECT_EQ(probs[i] > 0, map[i] == 1);
    if (map[i] == 1) taken.push_back(static_cast<int32_t>(i % 6));
  }
  EXPECT_EQ(taken, routes[0].experts);
}

TEST(RouterReplay, ARepeatedStepBeginsWithTheFirstRoutes) {
  Layer layer(set_groups_and_bias);
  TopKRouter& router = layer.layer->router();
  router.replay().record();
  forward(layer);
  router.begin_step(layer.ctx);
  forward(layer);
  router.finish_step(layer.ctx);
  const std::vector<RecordedRoutes> routes = router.replay().recorded();
  ASSERT_EQ(routes.size(), 1u);
  router.replay().replay(routes);
  forward(layer);
  EXPECT_THROW(forward(layer), ShapeError);  // there are no routes of a second pass
  router.begin_step(layer.ctx);
  forward(layer);
  EXPECT_EQ(router.replay().recorded(), routes);
}

TEST(RouterReplay, RejectsRoutesThatDoNotFit) {
  Layer layer(kVariants[0].change);
  RouterReplay& replay = layer.layer->router().replay();
  EXPECT_THROW(replay.replay({{.topk = 2, .experts = {1, 2, 3}}}), ConfigError);
  const std::vector<int32_t> of_one_token_too_few(13 * 2, 0), of_no_expert(14 * 2, 6), of_topk_1(14, 0);
  for (const RecordedRoutes& wrong :
       {RecordedRoutes{2, of_one_token_too_few}, RecordedRoutes{2, of_no_expert}, RecordedRoutes{1, of_topk_1}}) {
    replay.replay({wrong});
    EXPECT_THROW(forward(layer), ShapeError);
  }
}

}  // namespace
}  // namespace megatron::testing
