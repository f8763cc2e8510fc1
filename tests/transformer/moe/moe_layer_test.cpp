// A mixture of experts as a whole: grouped against sequential experts, recompute, balance over steps.
#include "megatron/transformer/moe/moe_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>

#include "megatron/autograd/recompute.h"
#include "megatron/autograd/recompute_run.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"
#include "tests/transformer/moe/small_moe_layer.h"

namespace megatron::testing {
namespace {

/// With all that a router counts.
void add_counters(MoeConfig& moe) {
  if (moe.topk.pre_softmax) return;  // the expert bias goes with sigmoid scores
  moe.topk.score = kernels::RouterScore::kSigmoid;
  moe.enable_expert_bias = true;
}

TEST(MoeLayer, GroupedExpertsEqualSequentialOnes) {
  for (const Variant& variant : kVariants) {
    SCOPED_TRACE(variant.name);
    Layer grouped(variant.change), sequential([&](MoeConfig&moe, TransformerConfig&config) {
      variant.change(moe, config);
      moe.grouped_gemm = false;
    });
    grouped.run();
    sequential.run();
    ASSERT_EQ(grouped.gradients.size(), sequential.gradients.size());
    const auto near = [](const std::vector<double>& a, const std::vector<double>& b, const std::string& what) {
      ASSERT_EQ(a.size(), b.size()) << what;
      for (size_t i = 0; i < a.size(); ++i)
        ASSERT_NEAR(a[i], b[i], tolerance(DType::kFloat64, 14 * 8, 16)) << what << ", element " << i;
    };
    near(grouped.output, sequential.output, "output");
    for (size_t k = 0; k < grouped.gradients.size(); ++k)
      near(grouped.gradients[k], sequential.gradients[k], fmt::format("gradient {}", k));
  }
}

TEST(MoeLayer, RecomputedGivesTheSameBitsAndCountsOnce) {
  for (const Variant& variant : kVariants) {
    SCOPED_TRACE(variant.name);
    const auto with_counters = [&](MoeConfig& moe, TransformerConfig& config) {
      variant.change(moe, config);
      add_counters(moe);
    };
    Layer plain(with_counters), recomputed(with_counters);
    plain.run();
    recomputed.run(/*with_recompute=*/true);
    EXPECT_EQ(plain.output, recomputed.output);
    EXPECT_EQ(plain.gradients, recomputed.gradients);
    if (plain.moe.enable_expert_bias) {
      EXPECT_EQ(values_of(plain.layer->router().tokens_per_expert()),
                values_of(recomputed.layer->router().tokens_per_expert()));
    }
    plain.layer->router().finish_step(plain.ctx);
    recomputed.layer->router().finish_step(recomputed.ctx);
    if (plain.layer->router().quantile_beta()) {
      EXPECT_EQ(values_of(plain.layer->router().quantile_beta()->value()),
                values_of(recomputed.layer->router().quantile_beta()->value()));
    }
  }
}

TEST(MoeLayer, PlansOnMetaWhatARealRunAllocates) {
  for (const Variant& variant : kVariants)
    for (const bool grouped : {false, true})
      for (const bool recomputes : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", variant.name, grouped, recomputes));
        const auto change = [&](MoeConfig& moe, TransformerConfig& config) {
          variant.change(moe, config);
          add_counters(moe);
          moe.grouped_gemm = grouped;
        };
        Layer real(change), meta(change, {.device = DeviceKind::kMeta});
        for (Layer* layer : {&real, &meta}) {
          layer->layer->router().begin_step(layer->ctx);
          layer->run(recomputes);
          layer->layer->router().finish_step(layer->ctx);
        }
        EXPECT_EQ(real.device.arena.events(), meta.device.arena.events());
        EXPECT_EQ(real.device.arena.high_water_bytes(), meta.device.arena.high_water_bytes());
        EXPECT_EQ(real.device.num_operations, meta.device.num_operations);
      }
}

TEST(MoeLayer, GivesTheSameBitsOnAnyNumberOfThreads) {
  for (const Variant& variant : kVariants) {
    SCOPED_TRACE(variant.name);
    const auto change = [&](MoeConfig& moe, TransformerConfig& config) {
      variant.change(moe, config);
      add_counters(moe);
    };
    Layer one(change, {.s = 900}), three(change, {.num_threads = 3, .s = 900});
    one.run();
    three.run();
    EXPECT_EQ(one.output, three.output);
    EXPECT_EQ(one.gradients, three.gradients);
  }
}

TEST(MoeLayer, TouchesDeviceMemoryInKernelsAlone) {
  for (const Variant& variant : kVariants)
    for (const bool grouped : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", variant.name, grouped));
      const auto change = [&](MoeConfig& moe, TransformerConfig& config) {
        variant.change(moe, config);
        add_counters(moe);
        moe.grouped_gemm = grouped;
      };
      Layer guarded(change, {.guard = true}), plain(change);
      for (Layer* layer : {&guarded, &plain}) {
        layer->layer->router().begin_step(layer->ctx);
        layer->run();
        layer->layer->router().finish_step(layer->ctx);
      }
      EXPECT_EQ(guarded.output, plain.output);
      EXPECT_EQ(guarded.gradients, plain.gradients);
    }
}

TEST(MoeLayer, InBf16WithAnFp32RouterGivesTheResultsOfFp64) {
  for (const Variant& variant : kVariants) {
    SCOPED_TRACE(variant.name);
    Layer exact(variant.change), rough(variant.change, {.dtype = DType::kBFloat16});
    exact.run();
    rough.run();
    const auto near = [](const std::vector<double>& a, const std::vector<double>& b, const std::string& what) {
      ASSERT_EQ(a.size(), b.size()) << what;
      double scale = 1;
      for (const double value : b) scale = std::max(scale, std::abs(value));
      for (size_t i = 0; i < a.size(); ++i)  // through four matrices and back
        ASSERT_NEAR(a[i], b[i], tolerance(DType::kBFloat16, 4, scale)) << what << ", element " << i;
    };
    near(rough.output, exact.output, "output");
    for (size_t k = 0; k < exact.gradients.size(); ++k)
      near(rough.gradients[k], exact.gradients[k], fmt::format("gradient {}", k));
  }
}

TEST(MoeLayer, WithSquareLatentProjectionsThatChangeNothingIsThePlainLayer) {
  const auto latent = [](MoeConfig& moe, TransformerConfig&) { moe.latent_size = 8; };
  Layer plain([](MoeConfig&, TransformerConfig&) {}), projected(latent);
  for (Parameter* parameter : projected.layer->parameters()) {
    if (parameter->name().find("latent") == std::string::npos) continue;
    EXPECT_EQ(parameter->shape(), (Shape{8, 8}));
    for (int64_t i = 0; i < 64; ++i) parameter->value().data<double>()[i] = i % 9 == 0 ? 1 : 0;
  }
  plain.run();
  projected.run();
  EXPECT_EQ(projected.output, plain.output);
}

TEST(MoeLayer, RegistersLatentProjectionsWithMegatronsNamesAndShapes) {
  Layer layer([](MoeConfig& moe, TransformerConfig& config) { moe.latent_size = 3, config.add_bias_linear = true; });
  std::vector<std::string> names;
  std::vector<Shape> shapes;
  for (const Parameter* parameter : layer.layer->parameters()) {
    names.push_back(parameter->name());
    shapes.push_back(parameter->shape());
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "mlp.router.weight", "mlp.router.bias", "mlp.fc1_latent_proj.weight", "mlp.fc1_latent_proj.bias",
                       "mlp.fc2_latent_proj.weight", "mlp.fc2_latent_proj.bias",
                       "mlp.experts.experts.linear_fc1.weight", "mlp.experts.experts.linear_fc1.bias",
                       "mlp.experts.experts.linear_fc2.weight", "mlp.experts.experts.linear_fc2.bias"}));
  EXPECT_EQ(shapes, (std::vector<Shape>{{6, 8}, {6}, {3, 8}, {3}, {8, 3}, {8}, {6, 5, 3}, {6, 5}, {6, 3, 5}, {6, 3}}));
}

TEST(MoeLayer, StoresEveryWeightUnderTheNameOfItsLayersWithoutTheNumber) {
  for (const bool is_grouped : {true, false}) {
    Layer base([&](MoeConfig& moe, TransformerConfig& config) {
      moe.latent_size = 3, config.add_bias_linear = true, moe.grouped_gemm = is_grouped;
    });
    const ModuleContext root{
        .ctx = base.ctx, .config = base.config, .groups = ProcessGroupCollection::single(), .path = ""};
    const std::string layers = "decoder.layers.", third = "decoder.layers.3.";
    const MoeLayer layer(root.layer("decoder.layers", 3).at("mlp"), base.moe);
    for (const Parameter* parameter : layer.parameters()) {
      EXPECT_EQ(parameter->stored_key(), layers + parameter->name().substr(third.size()));
      EXPECT_EQ(parameter->options().stored.layer, 3) << parameter->name();
    }
  }
}

TEST(MoeLayer, IsDroplessWhereAllTokensGoToOneExpert) {
  const auto one_expert = [](MoeConfig& moe, TransformerConfig&) { moe.topk = {.topk = 1, .pre_softmax = true}; };
  Layer grouped(one_expert), sequential([&](MoeConfig&moe, TransformerConfig&config) {
    one_expert(moe, config);
    moe.grouped_gemm = false;
  });
  for (Layer* layer : {&grouped, &sequential}) {
    double* weight = layer->layer->parameters()[0]->value().data<double>();
    std::fill_n(weight, 6 * 8, 0.0);  // equal scores: the first expert has all tokens
    layer->run();
  }
  ASSERT_EQ(grouped.output.size(), sequential.output.size());
  for (size_t i = 0; i < grouped.output.size(); ++i) {
    EXPECT_NEAR(grouped.output[i], sequential.output[i], tolerance(DType::kFloat64, 8, 16));
    EXPECT_NE(grouped.output[i], 0);
  }
}

/// Largest load over the mean after some steps of a rule that moves a bias, with experts of unequal attraction.
double imbalance_after(int steps, const std::function<void(MoeConfig&)>& change) {
  TestDevice device{DeviceKind::kCpu, 1};
  Context ctx = device.context();
  TransformerConfig config;
  config.num_layers = 1;
  config.hidden_size = 4;
  config.add_bias_linear = true;
  MoeConfig moe{.num_experts = 8, .ffn_hidden_size = 1};
  change(moe);
  TopKRouter router({.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = "router"}, moe);
  for (Parameter* parameter : router.parameters())
    if (parameter->is_trainable()) fill_uniform(ctx, parameter->value(), parameter->name());
  ctx.mode = GradMode::kCountUses;  // counts as in training, without a tape
  RecomputeRun run;
  ctx.run = &run;
  Tensor counts = ctx.empty("counts", {1, 8}, DType::kFloat32);
  for (int step = 0; step < steps; ++step) {
    Tensor x = ctx.empty("x", {400, 1, 4}, DType::kFloat32);
    fill_uniform(ctx, x, fmt::format("x {}", step));
    const RouterOutput output = router.forward(ctx, x, {});
    count_tokens(ctx, output.routing.map, counts, false);
    router.finish_step(ctx);
    run = {};
  }
  const std::vector<double> loads = values_of(counts);
  return *std::max_element(loads.begin(), loads.end()) / (400.0 * 2 / 8);
}

TEST(TopKRouter, BalancesLoadsOverStepsByExpertBiasAndByQuantiles) {
  const auto bias = [](MoeConfig& moe) {
    moe.topk.score = kernels::RouterScore::kSigmoid;
    moe.enable_expert_bias = true;
    moe.bias_update_rate = 0.02;
  };
  const auto quantile = [](MoeConfig& moe) {
    moe.load_balancing = {{LoadBalancingType::kQuantileBalancing, 0}};
    moe.quantile_balancing_ema = 0.5;
  };
  for (const auto& rule : {std::function<void(MoeConfig&)>(bias), std::function<void(MoeConfig&)>(quantile)}) {
    EXPECT_GT(imbalance_after(1, rule), 1.6) << "the experts are unequal at first";
    EXPECT_LT(imbalance_after(60, rule), 1.25);
  }
}

}  // namespace
}  // namespace megatron::testing
