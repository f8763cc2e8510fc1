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

namespace megatron::testing {
namespace {

struct Variant {
  const char* name;
  std::function<void(MoeConfig&, TransformerConfig&)> change;
};

/// 6 experts of width 5 for 14 tokens of 8 features, top 2.
struct Layer {
  explicit Layer(const std::function<void(MoeConfig&, TransformerConfig&)>& change) {
    config.num_layers = 1;
    config.hidden_size = 8;
    config.ffn_hidden_size = 5;
    config.add_bias_linear = false;
    config.params_dtype = DType::kFloat64;
    moe.num_experts = 6;
    moe.ffn_hidden_size = 5;
    change(moe, config);
    layer = std::make_unique<MoeLayer>(
        ModuleContext{.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = "mlp"}, moe);
    for (Parameter* parameter : layer->parameters()) {
      // Experts have the same values whether they are stacked or not.
      fill(*parameter);
      parameter->set_main_grad(ctx.empty("main_grad", parameter->shape(), DType::kFloat64, MemoryUse::kGradients));
      parameter->begin_step();
    }
  }

  void fill(Parameter& parameter) {
    std::string name = parameter.name();
    int64_t first = 0;
    const std::string local = ".experts.local_experts.";
    if (const size_t place = name.find(local); place != std::string::npos) {
      first = std::stoll(name.substr(place + local.size())) * parameter.value().num_elements();
      name = name.substr(0, place) + ".experts.experts" + name.substr(name.find('.', place + local.size()));
    }
    for (int64_t i = 0; i < parameter.value().num_elements(); ++i)
      parameter.value().data<double>()[i] = 2 * uniform(ctx.key.at(name), first + i) - 1;
  }

  /// Forward and backward; the gradients of the weights of one kind one after the other.
  void run(bool with_recompute = false) {
    Tape tape(ctx.device);
    Context training = ctx;
    training.tape = &tape;
    training.mode = GradMode::kRecord;
    Tensor x = ctx.empty("x", {7, 2, 8}, DType::kFloat64);
    fill_uniform(ctx, x, "x");
    tape.watch(x);
    Tensor y;
    if (with_recompute) {
      y = at(recompute(training, {{"x", x}},
                       [&](Context& c, const Payload& in) {
                         return Payload{{"y", layer->forward(c, at(in, "x"), {}).output}};
                       }),
             "y");
    } else {
      y = layer->forward(training, x, {}).output;
    }
    output = values_of(y);
    Tensor seed = ctx.empty("seed", y.shape(), DType::kFloat64);
    fill_uniform(ctx, seed, "seed");
    tape.seed(training, y.slot, std::move(seed));
    tape.backward(training, Phase::kBW, 0);
    gradients = {values_of(tape.take_gradient(x.slot))};
    std::map<std::string, std::vector<double>> by_kind;
    for (Parameter* parameter : layer->parameters()) {
      parameter->finish(ctx);
      std::string kind = parameter->name();
      if (const size_t place = kind.find(".linear_"); place != std::string::npos && kind.find("shared") == kind.npos)
        kind = kind.substr(place);
      const std::vector<double> values = values_of(parameter->main_grad());
      by_kind[kind].insert(by_kind[kind].end(), values.begin(), values.end());
    }
    for (auto& [kind, values] : by_kind) gradients.push_back(values);
  }

  TestDevice device{DeviceKind::kCpu, 1};
  Context ctx = device.context();
  TransformerConfig config;
  MoeConfig moe;
  std::unique_ptr<MoeLayer> layer;
  std::vector<double> output;
  std::vector<std::vector<double>> gradients;
};

const Variant kVariants[] = {
    {"dropless", [](MoeConfig&, TransformerConfig&) {}},
    {"biases", [](MoeConfig&, TransformerConfig& c) { c.add_bias_linear = true; }},
    {"gated",
     [](MoeConfig&, TransformerConfig& c) { c.gated_linear_unit = true, c.activation_func = ActivationFunc::kSilu; }},
    {"dropped", [](MoeConfig& m, TransformerConfig& c) { m.expert_capacity_factor = 0.7, c.add_bias_linear = true; }},
    {"dropped by position",
     [](MoeConfig& m, TransformerConfig&) {
       m.expert_capacity_factor = 0.7, m.token_drop_policy = kernels::TokenDropPolicy::kPosition;
     }},
    {"padded to capacity",
     [](MoeConfig& m, TransformerConfig&) { m.expert_capacity_factor = 1.2, m.pad_expert_input_to_capacity = true; }},
    {"padded to a multiple",
     [](MoeConfig& m, TransformerConfig& c) { m.pad_expert_input_to_multiple = 4, c.add_bias_linear = true; }},
    {"probabilities on the input",
     [](MoeConfig& m, TransformerConfig& c) {
       m.topk = {.topk = 1, .pre_softmax = true}, m.apply_probs_on_input = true, c.add_bias_linear = true;
     }},
    {"shared experts",
     [](MoeConfig& m, TransformerConfig&) { m.shared_expert_intermediate_size = 7, m.shared_expert_gate = true; }},
    {"losses",
     [](MoeConfig& m, TransformerConfig&) {
       m.load_balancing = {{LoadBalancingType::kSeqAuxLoss, 0.1}, {LoadBalancingType::kGlobalAuxLoss, 0.2}};
       m.z_loss_coeff = 0.1;
     }},
    {"quantile balancing",
     [](MoeConfig& m, TransformerConfig&) {
       m.load_balancing = {{LoadBalancingType::kQuantileBalancing, 0}};
     }},
    {"forced routing", [](MoeConfig& m, TransformerConfig&) { m.force_routing_bias_std = 0.5; }}};

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
      if (moe.topk.pre_softmax) return;  // the expert bias goes with sigmoid scores
      moe.topk.score = kernels::RouterScore::kSigmoid;
      moe.enable_expert_bias = true;
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
    if (plain.layer->router().quantile_beta().defined()) {
      EXPECT_EQ(values_of(plain.layer->router().quantile_beta()),
                values_of(recomputed.layer->router().quantile_beta()));
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
  MoeConfig moe;
  moe.num_experts = 8;
  moe.ffn_hidden_size = 1;
  change(moe);
  TopKRouter router({.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = "router"}, moe);
  for (Parameter* parameter : router.parameters()) fill_uniform(ctx, parameter->value(), parameter->name());
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
