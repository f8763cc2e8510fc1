// Two small models of Megatron Core on two and four ranks: values and collectives (tests/golden/parallelism).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/models/gpt/golden_case.h"
#include "tests/models/gpt/tensor_parallel_case.h"
#include "tests/testing/golden_collectives.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

using Json = nlohmann::json;

TensorParallelCase case_of(const Json& step) {
  return {.config = config_of_golden_step(step),
          .num_ranks = step["tp"],
          .sequence_parallel = step["sp"],
          .s = step["s"],
          .b = step["b"],
          .num_micro_batches = 1};
}

std::map<std::string, std::vector<double>> tensors_below(const GoldenTensors& file, const std::string& prefix) {
  std::map<std::string, std::vector<double>> result;
  for (const std::string& name : file.names())
    if (name.starts_with(prefix)) result[name.substr(prefix.size())] = file.values(name);
  return result;
}

void for_each_step(const std::function<void(const Json&)>& function) {
  const Json steps = golden_collective_steps();
  ASSERT_FALSE(steps.empty());
  for (const Json& step : steps) {
    SCOPED_TRACE(fmt::format("model {} tp {} sp {}", step["model"].dump(), step["tp"].dump(), step["sp"].dump()));
    function(step);
  }
}

TEST(TensorParallelGolden, LossAndEveryGradientAreMegatrons) {
  const GoldenTensors file("parallelism/model.safetensors");
  for_each_step([&](const Json& step) {
    const std::string model = step["model"];
    TensorParallelCase c = case_of(step);
    c.tokens = file.integers(model + "/ids");
    c.labels = file.integers(model + "/labels");
    const StepResult actual = run_step(c, tensors_below(file, model + "/weight/"));
    const int64_t length = length_there_and_back(c.config, c.s, c.b);
    const double loss = file.values(model + "/loss").at(0);
    EXPECT_NEAR(actual.loss, loss, tolerance(DType::kFloat32, length, loss));
    const auto gradients = tensors_below(file, model + "/grad/");
    EXPECT_EQ(actual.gradients.size(), gradients.size());
    for (const auto& [name, expected] : gradients) {
      double largest = 0, error = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        error = std::max(error, std::abs(actual.gradients.at(name).at(i) - expected[i]));
      }
      EXPECT_LE(error, tolerance(DType::kFloat32, length, largest)) << name;
    }
  });
}

/// We differ in this (docs/differences.md): the last two messages of the loss are one, as in Megatron's fused loss;
/// embeddings with learned positions are reduce-scattered too; keys and values of shared groups are copies whose
/// gradients are summed once a step, where Megatron gathers the fused projection in every layer.
struct Expected {
  std::vector<Collective> forward, backward, finalize;
};

Expected expected_of(const Json& step) {
  const Json& phases = step["phases"];
  Expected result{golden_collectives(phases["forward"], "tp"), golden_collectives(phases["backward"], "tp"),
                  golden_collectives(phases["finalize"], "tp")};
  const int64_t s = step["s"], b = step["b"], h = step["h"], tp = step["tp"], tokens = s * b;
  if (tp == 1) return {};
  if (!step["fused_loss"].get<bool>()) {
    for (size_t i = result.forward.size() - 2; i < result.forward.size(); ++i)
      EXPECT_EQ(result.forward[i], (Collective{CommOp::kAllReduce, tokens}));
    result.forward.pop_back();
    result.forward.back().num_elements = 2 * tokens;
  }
  const bool sp = step["sp"];
  if (sp) result.forward.front().op = CommOp::kReduceScatter;
  const int64_t groups = step["query_groups"], d = h / step["heads"].get<int64_t>();
  if (groups >= tp) return result;
  const int64_t columns = (step["heads"].get<int64_t>() + 2 * groups) * d;
  std::erase(result.forward, Collective{CommOp::kAllGather, tokens * columns / tp});
  std::erase(result.backward, Collective{CommOp::kReduceScatter, tokens * columns});
  if (result.finalize.empty()) result.finalize.push_back({CommOp::kAllReduce, 0});
  result.finalize.back().num_elements += step["layers"].get<int64_t>() * groups * 2 * d * h;
  return result;
}

TEST(TensorParallelGolden, CollectivesAreMegatronsButForTheDocumentedDifferences) {
  for_each_step([](const Json& step) {
    const StepResult actual = run_step(case_of(step), {});
    const Expected expected = expected_of(step);
    EXPECT_EQ(actual.forward, expected.forward);
    EXPECT_EQ(actual.backward, expected.backward);
    EXPECT_EQ(actual.finalize, expected.finalize);
  });
}

}  // namespace
}  // namespace megatron::testing
