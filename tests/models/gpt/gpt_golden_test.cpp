#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "megatron/transformer/qk_clip.h"
#include "tests/models/gpt/golden_run.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

using Json = nlohmann::json;

double largest(const std::vector<double>& values) {
  double result = 0;
  for (double value : values) result = std::max(result, std::abs(value));
  return result;
}

std::vector<double> gradient_of(Parameter& parameter) { return values_of(parameter.main_grad()); }

void for_each_dense_model(const std::function<void(const Json&)>& function) {
  for_each_golden_case({"training/models.json", "training/extra_mla_models.json", "training/extra_gate_models.json"},
                       function);
}

class GptGolden : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Precisions, GptGolden, ::testing::Values(DType::kFloat32, DType::kFloat64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(GptGolden, LogitsAndTokenLossesAreMegatrons) {
  for_each_dense_model([](const Json& test) {
    GoldenRun golden(test, GetParam());
    expect_golden(batch_first(golden.model->logits(golden.ctx, golden.batch.tensor("tokens"),
                                                   golden.batch.layout("tokens"), nullptr)),
                  golden.tensors.values("logits"), golden.length_there(), "logits");
    expect_golden(batch_first(golden.model->token_losses(golden.ctx, golden.batch)), golden.tensors.values("losses"),
                  golden.length_of_loss(), "losses");
  });
}

TEST_P(GptGolden, MeanLossAndEveryGradientAreMegatrons) {
  for_each_dense_model([](const Json& test) {
    GoldenRun golden(test, GetParam());
    const double mean = test["mean_loss"];
    expect_golden({golden.run()}, {mean}, golden.length_of_loss(), "mean loss");
    for (Parameter* parameter : golden.model->parameters())
      expect_golden(gradient_of(*parameter), golden.tensors.values("grad/" + parameter->name()),
                    golden.length_there_and_back(), parameter->name());
  });
}

Json clipped_case(Json test) {
  test["config"]["qk_clip"] = true;
  test["config"]["qk_clip_threshold"] = test["threshold"];
  test["config"]["qk_clip_alpha"] = test["alpha"];
  return test;
}

TEST_P(GptGolden, LargestLogitsAndClippedWeightsAreMegatrons) {
  for_each_golden_case({"training/extra_qk_clip_models.json"}, [](const Json& test) {
    GoldenRun golden(clipped_case(test), GetParam());
    golden.run();
    const std::vector<double> max_logits = golden.tensors.values("max_logits");
    expect_golden(values_of(golden.batch.tensor(kMaxAttentionLogits)), max_logits, golden.length_there(), "logits");
    std::map<Parameter*, std::vector<double>> weights;
    for (const ScaledRows& rows : golden.model->clipped_rows(max_logits)) {
      auto& values = weights.try_emplace(rows.parameter, values_of(rows.parameter->value())).first->second;
      const int64_t width = rows.parameter->shape()[1];
      for (int64_t i = rows.begin * width; i < rows.end * width; ++i) values[static_cast<size_t>(i)] *= rows.factor;
    }
    for (const auto& [parameter, values] : weights)
      expect_golden(values, golden.tensors.values("clipped/" + parameter->name()), 4, parameter->name());
    const auto is_clipped = [](const std::string& name) { return name.starts_with("clipped/"); };
    EXPECT_EQ(std::ssize(weights), std::ranges::count_if(golden.tensors.names(), is_clipped));
    EXPECT_FALSE(weights.empty());
  });
}

TEST(GptModel, RegistersMegatronsParametersInItsOrder) {
  for_each_dense_model([](const Json& test) {
    GoldenRun golden(test, DType::kFloat32);
    const std::vector<Parameter*> parameters = golden.model->parameters();
    ASSERT_EQ(parameters.size(), test["params"].size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(parameters[i]->name(), test["params"][i][0].get<std::string>());
      const Shape& shape = parameters[i]->shape();
      EXPECT_EQ(std::vector<int64_t>(shape.begin(), shape.end()), test["params"][i][1].get<std::vector<int64_t>>());
    }
  });
}

TEST(GptModel, RejectsValuesThatNoModelHasAllAtOnce) {
  TestDevice test(DeviceKind::kMeta, 1);
  TransformerConfig config;  // without any size
  config.num_layers = 1;
  config.hidden_size = 8;
  config.num_attention_heads = 3;
  config.num_query_groups = 2;
  config.kv_channels = 4;
  config.vocab_size = 50;
  config.padded_vocab_size = 40;
  config.max_sequence_length = 16;
  config.hidden_dropout = 1.5;
  const ProcessGroupCollection groups = ProcessGroupCollection::single();
  try {
    const GptModel model({.ctx = test.context(), .config = config, .groups = groups, .path = ""});
    ADD_FAILURE() << "was built";
  } catch (const ConfigError& error) {
    for (const char* text : {"ffn_hidden_size is 0; it must be above 0", "num_attention_heads 3 does not divide by",
                             "padded_vocab_size 40 is below vocab_size 50", "hidden_dropout is 1.5"})
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(GptModel, SegmentsGiveTheSameBitsAsTheWholeModel) {
  for_each_dense_model([](const Json& test) {
    GoldenRun whole(test, DType::kFloat32), cut(test, DType::kFloat32);
    EXPECT_EQ(cut.run_segments(), whole.run());
    EXPECT_EQ(values_of(cut.buffer->grads()), values_of(whole.buffer->grads()));
  });
}

TEST(GptModel, RowsThatPadTheVocabularyTakeNoPart) {
  for_each_dense_model([](const Json& test) {
    constexpr int64_t kPadding = 7;
    GoldenRun plain(test, DType::kFloat64), padded(test, DType::kFloat64, {.num_padding_rows = kPadding});
    const double mean = plain.run();
    EXPECT_NEAR(padded.run(), mean, tolerance(DType::kFloat64, plain.length_there(), mean));
    const std::vector<Parameter*> parameters = plain.model->parameters(), others = padded.model->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::vector<double> expected = gradient_of(*parameters[i]);
      std::vector<double> actual = gradient_of(*others[i]);
      for (size_t k = expected.size(); k < actual.size(); ++k) EXPECT_EQ(actual[k], 0) << others[i]->name();
      actual.resize(expected.size());
      const double bound = tolerance(DType::kFloat64, plain.length_there_and_back(), largest(expected));
      for (size_t k = 0; k < expected.size(); ++k) ASSERT_NEAR(actual[k], expected[k], bound) << others[i]->name();
    }
  });
}

TEST(GptModel, CachedGenerationGivesTheLogitsOfTheWholeSequence) {
  for_each_dense_model([](const Json& test) {
    GoldenRun golden(test, DType::kFloat64);
    const int64_t s = golden.s(), b = golden.b(), first = s / 2;
    const std::vector<double> expected = values_of(
        golden.model->logits(golden.ctx, golden.batch.tensor("tokens"), golden.batch.layout("tokens"), nullptr));
    const LayerStates states = golden.model->make_states(golden.ctx, {.max_rows = s, .b = b});
    std::vector<double> actual;
    for (int64_t begin = 0; begin < s; begin += begin == 0 ? first : 1) {  // a prompt, then one token after the other
      const int64_t length = begin == 0 ? first : 1;
      const auto layout = SequenceLayout::uniform(golden.ctx, {.s = length, .b = b, .first_position = begin});
      const Tensor tokens = golden.batch.tensor("tokens").slice(0, begin, length);
      const std::vector<double> logits = values_of(golden.model->logits(golden.ctx, tokens, layout, &states));
      actual.insert(actual.end(), logits.begin(), logits.end());
    }
    ASSERT_EQ(actual.size(), expected.size());
    const double bound = tolerance(DType::kFloat64, golden.length_there(), largest(expected));
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], bound) << "logit " << i;
  });
}

}  // namespace
}  // namespace megatron::testing
