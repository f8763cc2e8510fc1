// Models with layers for further tokens against Megatron Core: losses of every depth and every gradient.
#include <gtest/gtest.h>

#include "tests/models/gpt/golden_run.h"

namespace megatron::testing {
namespace {

using Json = nlohmann::json;

void for_each_mtp_model(const std::function<void(const Json&)>& function) {
  int count = 0;
  for_each_golden_case({"training/extra_mtp_models.json"}, [&](const Json& test) {
    function(test);
    ++count;
  });
  EXPECT_EQ(count, 2);
}

class MtpGolden : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Precisions, MtpGolden, ::testing::Values(DType::kFloat32, DType::kFloat64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(MtpGolden, LossesOfEveryDepthAndEveryGradientAreMegatrons) {
  for_each_mtp_model([](const Json& test) {
    GoldenRun trained(test, GetParam());
    const int64_t length = trained.length_of_loss();
    expect_golden({trained.run_segments()}, {test["mean_loss"].get<double>()}, length, "mean loss");
    for (size_t i = 0; i < test["mtp_losses"].size(); ++i)
      expect_golden(values_of(trained.batch.tensor(mtp_loss_name(static_cast<int64_t>(i) + 1))),
                    {test["mtp_losses"][i].get<double>()}, length, mtp_loss_name(static_cast<int64_t>(i) + 1));
    for (Parameter* parameter : trained.model->parameters())
      expect_golden(values_of(parameter->main_grad()), trained.tensors.values("grad/" + parameter->name()),
                    trained.length_there_and_back(), parameter->name());
  });
}

TEST(MultiTokenPrediction, RegistersMegatronsParametersInItsOrder) {
  for_each_mtp_model([](const Json& test) {
    const GoldenRun trained(test, DType::kFloat32);
    std::vector<std::string> expected, actual;
    for (const Json& parameter : test["params"]) expected.push_back(parameter[0]);
    for (const Parameter* parameter : trained.model->parameters()) actual.push_back(parameter->name());
    EXPECT_EQ(actual, expected);
  });
}

TEST(MultiTokenPrediction, RecomputeGivesTheSameBits) {
  for_each_mtp_model([](const Json& test) {
    GoldenRun plain(test, DType::kFloat32), recomputed(test, DType::kFloat32, {.recompute = true});
    EXPECT_EQ(recomputed.run_segments(), plain.run_segments());
    EXPECT_EQ(values_of(recomputed.buffer->grads()), values_of(plain.buffer->grads()));
    EXPECT_EQ(values_of(recomputed.batch.tensor("mtp_1 loss")), values_of(plain.batch.tensor("mtp_1 loss")));
  });
}

TEST(MultiTokenPrediction, TokensThatFollowAreThoseOfLaterRowsAndThenZeros) {
  TestDevice device(DeviceKind::kCpu, 1);
  const Context ctx = device.context();
  Tensor tokens = ctx.empty("tokens", {2, 4}, DType::kInt64);
  for (int i = 0; i < 8; ++i) tokens.data<int64_t>()[i] = 10 + i;
  const Tensor shifted = shifted_rows(ctx, tokens.transpose(0, 1), 3);  // two columns of four rows
  EXPECT_EQ(shifted.shape(), (Shape{4, 2}));
  EXPECT_EQ(std::vector<int64_t>(shifted.data<int64_t>(), shifted.data<int64_t>() + 8),
            (std::vector<int64_t>{13, 17, 0, 0, 0, 0, 0, 0}));
  EXPECT_THROW(shifted_rows(ctx, tokens, 3), ShapeError);
}

}  // namespace
}  // namespace megatron::testing
