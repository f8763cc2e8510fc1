// Mixture-of-experts models against Megatron Core: logits, losses, auxiliary losses and every gradient.
#include <gtest/gtest.h>

#include "tests/models/gpt/golden_run.h"

namespace megatron::testing {
namespace {

using Json = nlohmann::json;

/// The six models of experts, one with multi-latent attention and YaRN.
void for_each_moe_model(const std::function<void(const Json&)>& function) {
  int count = 0;
  for_each_golden_case({"training/extra_moe_models.json"}, [&](const Json& test) {
    function(test);
    ++count;
  });
  EXPECT_EQ(count, 6);
}

class MoeGolden : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Precisions, MoeGolden, ::testing::Values(DType::kFloat32, DType::kFloat64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(MoeGolden, LogitsAndTokenLossesAreMegatrons) {
  for_each_moe_model([](const Json& test) {
    GoldenRun golden(test, GetParam());
    expect_golden(batch_first(golden.model->logits(golden.ctx, golden.batch.tensor("tokens"),
                                                   golden.batch.layout("tokens"), nullptr)),
                  golden.tensors.values("logits"), golden.length_there(), "logits");
    expect_golden(batch_first(golden.model->token_losses(golden.ctx, golden.batch)), golden.tensors.values("losses"),
                  golden.length_of_loss(), "losses");
  });
}

TEST_P(MoeGolden, MeanLossAuxiliaryLossesAndEveryGradientAreMegatrons) {
  for_each_moe_model([](const Json& test) {
    GoldenRun golden(test, GetParam());
    const double mean = test["mean_loss"];
    expect_golden({golden.run()}, {mean}, golden.length_of_loss(), "mean loss");
    EXPECT_EQ(golden.model->metrics().size(), test["aux"].size());
    for (const auto& [name, values] : test["aux"].items())
      expect_golden(values_of(golden.batch.tensor(name)), values.get<std::vector<double>>(), golden.length_there(),
                    name);
    for (Parameter* parameter : golden.buffer->parameters())
      expect_golden(values_of(parameter->main_grad()), golden_values(golden.tensors, "grad/", parameter->name()),
                    golden.length_there_and_back(), parameter->name());
  });
}

TEST(MoeLayer, RegistersMegatronsParametersInItsOrderWithExpertsStacked) {
  for_each_moe_model([](const Json& test) {
    GoldenRun golden(test, DType::kFloat32);
    std::vector<std::string> expected, actual;
    for (const Json& parameter : test["params"]) {
      std::string name = parameter[0];
      const std::string all = ".experts.local_experts.", first = all + "0.";
      if (const size_t place = name.find(first); place != std::string::npos)
        name.replace(place, first.size(), ".experts.experts.");
      if (name.find(all) == std::string::npos) expected.push_back(name);
    }
    for (const Parameter* parameter : golden.buffer->parameters()) actual.push_back(parameter->name());
    EXPECT_EQ(actual, expected);
  });
}

TEST(MoeLayer, GivesTheSameBitsTwice) {
  for_each_moe_model([](const Json& test) {
    GoldenRun one(test, DType::kFloat32), two(test, DType::kFloat32);
    EXPECT_EQ(one.run(), two.run());
    EXPECT_EQ(values_of(one.buffer->grads()), values_of(two.buffer->grads()));
  });
}

}  // namespace
}  // namespace megatron::testing
