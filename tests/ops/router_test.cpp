// The router's ops: choice of experts, its gradient, losses that balance it.
#include "megatron/ops/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "megatron/ops/add.h"
#include "tests/testing/op_case.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {
using kernels::RouterScore;
using kernels::RouterTopkOptions;

/// In the least precise dtype that logits may have.
Tensor as_logits(Context& ctx, const Tensor& x) {
  return cast(ctx, x, x.dtype() == DType::kFloat64 ? x.dtype() : DType::kFloat32);
}

Tensor upload(const Context& ctx, const Shape& shape, const std::vector<double>& values) {
  Tensor x = ctx.empty("values", shape, DType::kFloat64, MemoryUse::kData);
  write_values<double>(ctx.device, values, x);
  return x;
}

TEST(RouterTopk, PassesAllChecksForEachScoreAndNormalisation) {
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSqrtSoftplus})
    for (const int64_t topk : {1, 3})
      for (const bool pre_softmax : {false, true})
        for (const bool has_groups : {false, true}) {
          RouterTopkOptions options{.topk = topk, .score = score, .pre_softmax = pre_softmax, .scaling_factor = 1.7};
          if (has_groups) {
            options.num_groups = 4;
            options.group_topk = topk;
          }
          check({.name = fmt::format("router_topk {} {} {} {}", static_cast<int>(score), topk, pre_softmax, has_groups),
                 .inputs = {{5, 8}},
                 .parameters = {},
                 .forward =
                     [=](Context& ctx, OpOperands& o) {
                       return std::vector{router_topk(ctx, as_logits(ctx, o.inputs[0]), {}, {}, options).probs};
                     },
                 .reduction_length = 8,
                 .magnitude = 4,
                 .dtypes = {DType::kFloat32}});  // rounding of lower precisions changes the choice
        }
}

TEST(RouterTopk, ChoosesGroupsByAsManyScoresAsAsked) {
  TestDevice test;
  Context ctx = test.context();
  const Tensor logits = upload(ctx, {1, 4}, {3, -3, 1, 1});
  const auto map_of = [&](int64_t num_scored) {
    const RouterTopkOptions options{.topk = 2, .num_groups = 2, .group_topk = 1, .group_score_topk = num_scored};
    return read_values<uint8_t>(ctx.device, router_topk(ctx, logits, {}, {}, options).map);
  };
  EXPECT_EQ(map_of(1), (std::vector<uint8_t>{1, 1, 0, 0}));
  EXPECT_EQ(map_of(2), (std::vector<uint8_t>{0, 0, 1, 1}));
  EXPECT_EQ(map_of(0), map_of(2)) << "topk / group_topk by default";
}

TEST(RouterTopk, ChoosesByTheBiasedScoreAndWeighsByTheScore) {
  TestDevice test;
  Context ctx = test.context();
  const Tensor logits = upload(ctx, {1, 3}, {2, 1, 0});
  Tensor bias = ctx.empty("bias", {3}, DType::kFloat32);
  write_values<float>(ctx.device, std::array{-10.0F, 0.0F, 10.0F}, bias);
  const Routing routing = router_topk(ctx, logits, {}, bias, {.topk = 2, .score = RouterScore::kSigmoid});
  const double one = 1 / (1 + std::exp(-1.0)), zero = 0.5;
  const std::vector<double> probs = values_of(routing.probs);
  EXPECT_EQ(probs[0], 0);
  EXPECT_NEAR(probs[1], one / (one + zero), 1e-15);
  EXPECT_NEAR(probs[2], zero / (one + zero), 1e-15);
}

TEST(RouterTopk, ChoosesTheLowerNumberAmongEqualsAndAlwaysTopkExperts) {
  TestDevice test;
  Context ctx = test.context();
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const Tensor logits = upload(ctx, {4, 4}, {1, 1, 1, 1, nan, 0, nan, -inf, nan, nan, nan, nan, inf, inf, 0, inf});
  const Routing routing = router_topk(ctx, logits, {}, {}, {.topk = 2});
  const std::vector<uint8_t> expected = {1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0};
  EXPECT_EQ(read_values<uint8_t>(ctx.device, routing.map), expected);
}

TEST(RouterTopk, RejectsOptionsThatDoNotFitTheExperts) {
  TestDevice test(DeviceKind::kMeta);
  Context ctx = test.context();
  const Tensor logits = ctx.empty("logits", {2, 8}, DType::kFloat32);
  for (const RouterTopkOptions& options :
       {RouterTopkOptions{.topk = 9}, RouterTopkOptions{.topk = 0},
        RouterTopkOptions{.topk = 2, .num_groups = 3, .group_topk = 1},
        RouterTopkOptions{.topk = 1, .num_groups = 4, .group_topk = 2},
        RouterTopkOptions{.topk = 6, .num_groups = 8, .group_topk = 3},
        RouterTopkOptions{.topk = 5, .num_groups = 4, .group_topk = 5},
        RouterTopkOptions{.topk = 2, .num_groups = 4, .group_topk = 2, .group_score_topk = 3}})
    EXPECT_THROW(router_topk(ctx, logits, {}, {}, options), ConfigError);
  EXPECT_THROW(router_topk(ctx, ctx.empty("logits", {2, 8}, DType::kBFloat16), {}, {}, {}), DtypeError);
}

TEST(DropTokens, PassesAllChecksWithEachPolicyAndPadding) {
  for (const auto policy : {kernels::TokenDropPolicy::kProbs, kernels::TokenDropPolicy::kPosition})
    for (const bool pad : {false, true})
      for (const int64_t capacity : {2, 9})
        check({.name = fmt::format("drop_tokens {} {} {}", static_cast<int>(policy), pad, capacity),
               .inputs = {{7, 4}},
               .parameters = {},
               .forward =
                   [=](Context& ctx, OpOperands& o) {
                     const Routing routing = router_topk(ctx, as_logits(ctx, o.inputs[0]), {}, {}, {.topk = 2});
                     return std::vector{
                         drop_tokens(ctx, routing, {.capacity = capacity, .policy = policy, .pad = pad}).probs};
                   },
               .reduction_length = 4,
               .dtypes = {DType::kFloat32}});
}

constexpr double kCoeff = 0.3;

/// Gradient that `attach` adds to the logits, against central differences of its loss times the scale.
template <class Attach>
void expect_gradient_of_loss(const Shape& shape, double scale_value, const Attach& attach) {
  TestDevice test;
  const Context plain = test.context();
  Tensor logits = plain.empty("logits", shape, DType::kFloat64);
  fill_uniform(plain, logits, "logits");
  const Tensor scale = upload(plain, {1}, {scale_value});
  Tape tape(test.device);
  Context ctx = plain;
  ctx.tape = &tape;
  ctx.mode = GradMode::kRecord;
  tape.watch(logits);
  const Tensor same = attach(ctx, logits, scale).logits;
  EXPECT_EQ(values_of(same), values_of(logits));
  Tensor upstream = plain.empty("upstream", shape, DType::kFloat64);
  fill_uniform(plain, upstream, "upstream");
  tape.seed(ctx, same.slot, upstream);
  tape.backward(ctx, Phase::kBW, 0);
  const std::vector<double> gradient = values_of(tape.take_gradient(logits.slot)), passed = values_of(upstream);
  Context off = plain;
  for (int64_t i = 0; i < logits.num_elements(); ++i) {
    double* element = logits.data<double>() + i;
    const double value = *element;
    double losses[2];
    for (const int side : {0, 1}) {
      *element = value + (side == 0 ? kDifferenceStep : -kDifferenceStep);
      losses[side] = *attach(off, logits.detach(), scale).loss.template data<double>();
    }
    *element = value;
    const double difference = scale_value * kCoeff * (losses[0] - losses[1]) / (2 * kDifferenceStep);
    EXPECT_NEAR(gradient[i] - passed[i], difference, kGradientTolerance);
  }
}

TEST(BalanceLoss, AddsItsGradientToThatOfTheLogitsForEachScoreAndSequence) {
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSqrtSoftplus})
    for (const int64_t num_sequences : {1, 2})
      expect_gradient_of_loss({6, 5}, 0.5, [=](Context& ctx, const Tensor& logits, const Tensor& scale) {
        Tensor counts = ctx.empty("counts", {num_sequences, 5}, DType::kFloat32);
        std::vector<float> values;  // fixed: tokens are counted, not differentiated
        for (int i = 0; i < num_sequences * 5; ++i) values.push_back(static_cast<float>(i % 4));
        write_values<float>(ctx.device, values, counts);
        return attach_balance_loss(ctx, logits, counts, scale, score, kCoeff);
      });
}

TEST(ZLoss, AddsItsGradientToThatOfTheLogits) {
  expect_gradient_of_loss({6, 5}, 0.5, [](Context& ctx, const Tensor& logits, const Tensor& scale) {
    return attach_z_loss(ctx, logits, scale, kCoeff);
  });
}

TEST(CountTokens, CountsEachSequenceAndAccumulates) {
  TestDevice test;
  Context ctx = test.context();
  const Tensor logits = upload(ctx, {4, 3}, {3, 2, 1, 1, 2, 3, 3, 1, 2, 3, 2, 1});
  const Tensor map = topk_map(ctx, logits, 2);
  Tensor counts = ctx.empty("counts", {2, 3}, DType::kFloat32), total = ctx.empty("total", {1, 3}, DType::kFloat32);
  count_tokens(ctx, map, counts, false);
  EXPECT_EQ(values_of(counts), (std::vector<double>{2, 1, 1, 1, 2, 1}));
  count_tokens(ctx, map, total, false);
  count_tokens(ctx, map, total, true);
  EXPECT_EQ(values_of(total), (std::vector<double>{6, 6, 4}));
}

TEST(QuantileBalancing, AddsTheQuantilesThatWouldBalanceEachExpertAndMovesBetaTowardsTheirMean) {
  TestDevice test;
  Context ctx = test.context();
  constexpr int64_t kTokens = 11, kExperts = 4, kTopk = 2;
  Tensor logits = ctx.empty("logits", {kTokens, kExperts}, DType::kFloat64);
  fill_uniform(ctx, logits, "logits");
  Tensor beta = ctx.empty("beta", {kExperts}, DType::kFloat32),
         sums = ctx.empty("sums", {kExperts + 1}, DType::kFloat32);
  write_values<float>(ctx.device, std::array{0.5F, -0.25F, 0.0F, -0.25F}, beta);
  write_values<float>(ctx.device, std::array{0.0F, 0.0F, 0.0F, 0.0F, 0.0F}, sums);
  const std::vector<double> z = values_of(logits), old_beta = values_of(beta);
  std::vector<double> values, quantiles;
  std::vector<std::vector<double>> margins(kExperts);
  for (int64_t t = 0; t < kTokens; ++t) {
    std::vector<double> row;
    for (int64_t i = 0; i < kExperts; ++i) row.push_back(z[t * kExperts + i] - old_beta[i]);
    values.insert(values.end(), row.begin(), row.end());
    std::sort(row.begin(), row.end(), std::greater<>());
    for (int64_t i = 0; i < kExperts; ++i) margins[i].push_back(z[t * kExperts + i] - row[kTopk]);
  }
  for (std::vector<double>& margin : margins) {
    std::sort(margin.begin(), margin.end(), std::greater<>());
    quantiles.push_back(margin[kTokens * kTopk / kExperts]);
  }
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
    EXPECT_EQ(values_of(quantile_values(ctx, logits, beta, sums, kTopk)), values);
  EXPECT_EQ(values_of(quantile_values(ctx, logits, beta, {}, kTopk)), values);
  const double mean = std::accumulate(quantiles.begin(), quantiles.end(), 0.0) / kExperts;
  update_quantile_beta(ctx, sums, beta, 0.75);
  const std::vector<double> new_beta = values_of(beta), added = values_of(sums);
  EXPECT_EQ(added.back(), 2);
  for (size_t i = 0; i < kExperts; ++i) {
    EXPECT_NEAR(added[i], 2 * quantiles[i], tolerance(DType::kFloat32, 2));
    EXPECT_NEAR(new_beta[i], 0.75 * old_beta[i] + 0.25 * (quantiles[i] - mean), tolerance(DType::kFloat32, 4))
        << "the old betas have mean 0";
  }
}

TEST(ForceRouting, DrawsNewBalancedLogitsEachStepAndPassesTheGradientOn) {
  TestDevice test;
  Context ctx = test.context();
  Tape tape(test.device);
  ctx.tape = &tape;
  ctx.mode = GradMode::kRecord;
  Tensor logits = ctx.empty("logits", {2000, 4}, DType::kFloat64);
  fill_uniform(ctx, logits, "logits");
  tape.watch(logits);
  const Tensor forced = force_routing(ctx, logits, "router", 0);
  double sum = 0, squares = 0;
  for (const double z : values_of(forced)) sum += z, squares += z * z;
  EXPECT_NEAR(sum / 8000, 0, 5 / std::sqrt(8000));  // five deviations of the mean
  EXPECT_NEAR(squares / 8000, 1, 5 * std::sqrt(2.0 / 8000));
  Tensor seed = ctx.empty("seed", logits.shape(), DType::kFloat64);
  fill_uniform(ctx, seed, "seed");
  const std::vector<double> expected = values_of(seed);
  tape.seed(ctx, forced.slot, std::move(seed));
  tape.backward(ctx, Phase::kBW, 0);
  EXPECT_EQ(values_of(tape.take_gradient(logits.slot)), expected);
  ++test.step.step;
  EXPECT_NE(values_of(force_routing(ctx, logits, "router", 0)), values_of(forced));
}

TEST(ForceRouting, WithABiasPrefersTheSameExpertsInEachStep) {
  TestDevice test;
  Context ctx = test.context();
  const Tensor logits = ctx.empty("logits", {500, 8}, DType::kFloat64);
  Tensor counts = ctx.empty("counts", {1, 8}, DType::kFloat32);
  std::vector<size_t> preferred;
  for (int step = 0; step < 2; ++step, ++test.step.step) {
    count_tokens(ctx, topk_map(ctx, force_routing(ctx, logits, "router", 4), 2), counts, false);
    const std::vector<double> loads = values_of(counts);
    preferred.push_back(static_cast<size_t>(std::max_element(loads.begin(), loads.end()) - loads.begin()));
    EXPECT_GT(loads[preferred.back()], 400) << "with deviation 4 the biases outweigh the noise";
  }
  EXPECT_EQ(preferred[0], preferred[1]);
}

}  // namespace
}  // namespace megatron::testing
