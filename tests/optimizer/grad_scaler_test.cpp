#include "megatron/optimizer/grad_scaler.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "tests/testing/golden_json.h"

namespace megatron {
namespace {

using Json = nlohmann::json;

DynamicGradScalerConfig config_of(const Json& args) {
  return {.initial_scale = args["initial_scale"],
          .min_scale = args["min_scale"],
          .growth_factor = args["growth_factor"],
          .backoff_factor = args["backoff_factor"],
          .growth_interval = args["growth_interval"],
          .hysteresis = args["hysteresis"]};
}

// Rows and inverses are exact: the reference computes in float32 too.
TEST(GradScaler, FollowsTheGoldenScalesBitForBit) {
  for (const Json& test : testing::golden_json("training/loss_scalers.json", "cases")) {
    SCOPED_TRACE(test["args"].dump());
    if (test["kind"] == "constant") {
      const ConstantGradScaler scaler(test["args"]["initial_scale"].get<double>());
      EXPECT_EQ(scaler.scale(), test["rows"][0][0].get<float>());
      EXPECT_EQ(scaler.inverse_scale(), test["inverse"][0].get<float>());
      continue;
    }
    DynamicGradScaler scaler(config_of(test["args"]));
    for (size_t row = 0; row < test["rows"].size(); ++row) {
      if (row > 0) scaler.update(test["found_inf"][row - 1].get<int>() != 0);
      const Json& expected = test["rows"][row];
      EXPECT_EQ(scaler.state(), (DynamicGradScaler::State{expected[0], expected[1], expected[2]})) << "row " << row;
      EXPECT_EQ(scaler.inverse_scale(), test["inverse"][row].get<float>()) << "row " << row;
    }
  }
}

TEST(GradScaler, RefusesWhatTheReferenceRefuses) {
  for (const Json& test : testing::golden_json("training/loss_scalers.json", "construct")) {
    SCOPED_TRACE(test["args"].dump());
    if (test["error"].is_null())
      EXPECT_NO_THROW(DynamicGradScaler{config_of(test["args"])});
    else
      EXPECT_THROW(DynamicGradScaler{config_of(test["args"])}, ConfigError);
  }
  EXPECT_THROW(ConstantGradScaler{0.0}, ConfigError);
}

TEST(GradScaler, ContinuesFromALoadedState) {
  const DynamicGradScalerConfig config{.initial_scale = 1024, .growth_interval = 3};
  DynamicGradScaler straight(config), resumed(config);
  for (bool found_inf : {true, false, true}) straight.update(found_inf);
  resumed.load(straight.state());
  for (bool found_inf : {false, false, false, true}) {
    straight.update(found_inf);
    resumed.update(found_inf);
    EXPECT_EQ(straight.state(), resumed.state());
  }
}

TEST(GradScaler, IsMadeForFloat16Only) {
  OptimizerConfig config;
  EXPECT_EQ(make_grad_scaler(config), nullptr);
  config.params_dtype = DType::kFloat16;
  EXPECT_EQ(make_grad_scaler(config)->scale(), 4294967296.0f);
  config.loss_scale = 128;
  EXPECT_EQ(make_grad_scaler(config)->scale(), 128.0f);
}

}  // namespace
}  // namespace megatron
