// Routers against Megatron Core: probabilities, maps, auxiliary losses and gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "megatron/transformer/moe/topk_router.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/golden_moe.h"
#include "tests/testing/golden_tensors.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

using Json = nlohmann::json;

/// One set-up of routers.json with its weights.
struct GoldenRouter {
  GoldenRouter(const Json& description, const GoldenTensors& golden, DType dtype)
      : test(description), tensors(golden), name(test["name"]) {
    Json fields = test["config"];
    moe = take_moe_config(fields);
    moe.ffn_hidden_size = 1;  // the router has no use for it
    config.num_layers = 2;
    config.hidden_size = fields["hidden_size"];
    config.add_bias_linear = fields["add_bias_linear"];
    config.params_dtype = dtype;
    router = std::make_unique<TopKRouter>(
        ModuleContext{.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = name}, moe);
    for (Parameter* parameter : router->parameters()) {
      store(tensors.values(name + "/" + kind_of(*parameter)), parameter->value());
      if (!parameter->is_trainable()) continue;
      parameter->set_main_grad(ctx.empty("main_grad", parameter->shape(), dtype, MemoryUse::kGradients));
    }
  }

  static void store(const std::vector<double>& values, Tensor& x) {
    dispatch_floating(x.dtype(), [&]<class T>() {
      std::transform(values.begin(), values.end(), x.data<T>(), [](double value) { return static_cast<T>(value); });
    });
  }
  /// "weight" or "bias".
  std::string kind_of(const Parameter& parameter) const { return parameter.name().substr(name.size() + 1); }
  Tensor tensor(const std::string& key, DType dtype) {
    Tensor x = ctx.empty("golden", tensors.shape(key), dtype);
    store(tensors.values(key), x);
    return x;
  }

  Json test;
  const GoldenTensors& tensors;
  std::string name;
  TestDevice device{DeviceKind::kCpu, 1};
  Context ctx = device.context();
  MoeConfig moe;
  TransformerConfig config;
  std::unique_ptr<TopKRouter> router;
};

double largest(const std::vector<double>& values) {
  double result = 0;
  for (double value : values) result = std::max(result, std::abs(value));
  return result;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, int64_t length,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  const double bound = tolerance(DType::kFloat32, length, std::max(1.0, largest(expected)));
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], bound) << what << ", element " << i;
}

/// Columns that are set in each row.
std::vector<int64_t> loads_of(const std::vector<int64_t>& map, int64_t e) {
  std::vector<int64_t> loads(static_cast<size_t>(e));
  for (size_t i = 0; i < map.size(); ++i) loads[i % static_cast<size_t>(e)] += map[i];
  return loads;
}

class RouterGolden : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Precisions, RouterGolden, ::testing::Values(DType::kFloat32, DType::kFloat64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

/// If the reference's top-k decides between equal probabilities, only the loads are defined.
void compare_call(GoldenRouter& golden, const std::string& call) {
  const std::string key = golden.name + "/" + call + "/";
  const DType dtype = golden.config.params_dtype;
  const int64_t e = golden.moe.num_experts, h = golden.config.hidden_size;
  Tape tape(golden.device.device);
  Context ctx = golden.ctx;
  ctx.tape = &tape;
  ctx.mode = GradMode::kRecord;
  for (Parameter* parameter : golden.router->parameters()) parameter->begin_step();
  Tensor x = golden.tensor(key + "input", dtype);
  tape.watch(x);
  const RouterOutput output = golden.router->forward(ctx, x, {});
  const std::vector<uint8_t> bytes = read_values<uint8_t>(ctx.device, output.routing.map);
  const std::vector<int64_t> map(bytes.begin(), bytes.end()), expected = golden.tensors.integers(key + "routing_map");
  EXPECT_EQ(loads_of(map, e), loads_of(expected, e));
  const Json& losses = golden.test["aux"][std::stoul(call)];
  EXPECT_EQ(output.losses.size(), losses.size());
  for (const AuxiliaryLoss& loss : output.losses)
    expect_near(values_of(loss.value), {losses[std::string(loss.name)][0].get<double>()}, h + 24 * e,
                std::string(loss.name));
  const bool has_ties =
      golden.moe.expert_capacity_factor &&
      (golden.moe.pad_expert_input_to_capacity || golden.moe.token_drop_policy == kernels::TokenDropPolicy::kPosition);
  if (golden.moe.token_drop_policy == kernels::TokenDropPolicy::kPosition) return;
  if (!has_ties) {
    EXPECT_EQ(map, expected);
  }
  expect_near(values_of(output.routing.probs), golden.tensors.values(key + "probs"), h + e, "probs");
  tape.seed(ctx, output.routing.probs.slot, golden.tensor(key + "probs_upstream", output.routing.probs.dtype()));
  tape.backward(ctx, Phase::kBW, 0);
  expect_near(values_of(tape.take_gradient(x.slot)), golden.tensors.values(key + "grad_input"), h + e, "grad_input");
  for (Parameter* parameter : golden.router->parameters()) {
    if (!parameter->is_trainable()) continue;
    const std::string kind = golden.kind_of(*parameter);
    expect_near(values_of(parameter->main_grad()), golden.tensors.values(key + "grad_" + kind), h + e + 24,
                "grad_" + kind);
  }
}

TEST_P(RouterGolden, ProbabilitiesMapsLossesAndGradientsAreMegatrons) {
  const GoldenTensors tensors("training/routers.safetensors");
  const Json cases = golden_json("training/routers.json", "cases");
  ASSERT_EQ(cases.size(), 29);
  for (const Json& test : cases) {
    SCOPED_TRACE(test["name"].get<std::string>());
    GoldenRouter golden(test, tensors, GetParam());
    golden.router->begin_step(golden.ctx);
    for (int call = 0; call < test["calls"].get<int>(); ++call) compare_call(golden, std::to_string(call));
    if (!golden.moe.enable_expert_bias) continue;
    EXPECT_EQ(values_of(golden.router->tokens_per_expert()), tensors.values(golden.name + "/tokens_per_expert"));
    golden.router->finish_step(golden.ctx);
    expect_near(values_of(golden.router->expert_bias()->value()), tensors.values(golden.name + "/expert_bias_after"), 1,
                "bias");
    EXPECT_EQ(largest(values_of(golden.router->tokens_per_expert())), 0);
  }
}

}  // namespace
}  // namespace megatron::testing
