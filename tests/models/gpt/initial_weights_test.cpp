#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/models/gpt/golden_case.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/test_device.h"

namespace megatron {
namespace {

using Json = nlohmann::json;

constexpr double kDeviations = 5;  // beyond which 1 in 10^6 normal values lies; hundreds are tested

/// Models of the kind that this version builds.
bool is_dense(const Json& test) { return !test["config"].contains("num_moe_experts"); }

void for_each_dense_model(const std::function<void(const Json&, const GptModel&, const Context&)>& function) {
  int num_models = 0;
  for (const Json& test : testing::golden_json("training/init.json", "cases")) {
    if (!is_dense(test)) continue;
    SCOPED_TRACE(test["model"].get<std::string>() + test["change"].dump());
    ++num_models;
    testing::TestDevice device{DeviceKind::kCpu, 1};
    const Context ctx = device.context();
    const TransformerConfig config = testing::golden_config(test["config"], test["model_arguments"], Json());
    GptModel model({.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = ""});
    model.initialize(ctx);
    function(test, model, ctx);
  }
  EXPECT_GT(num_models, 0);
}

struct Moments {
  double mean = 0, deviation = 0;
};

Moments moments_of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  Moments moments;
  for (double value : values) moments.mean += value / n;
  for (double value : values) moments.deviation += (value - moments.mean) * (value - moments.mean) / (n - 1);
  moments.deviation = std::sqrt(moments.deviation);
  return moments;
}

TEST(InitialWeights, FollowMegatronsDistributions) {
  for_each_dense_model([](const Json& test, const GptModel& model, const Context&) {
    const std::vector<Parameter*> parameters = model.parameters();
    ASSERT_EQ(parameters.size(), test["params"].size());
    for (const Parameter* parameter : parameters) {
      SCOPED_TRACE(parameter->name());
      const Json& expected = test["params"].at(parameter->name());
      const Shape& shape = parameter->shape();
      EXPECT_EQ(std::vector<int64_t>(shape.begin(), shape.end()), expected["shape"].get<std::vector<int64_t>>());
      const std::vector<double> values = testing::values_of(parameter->value());
      if (expected.contains("constant")) {
        const double constant = expected["constant"];
        EXPECT_TRUE(std::all_of(values.begin(), values.end(), [=](double value) { return value == constant; }));
        continue;
      }
      const double mean = expected["normal"][0], std = expected["normal"][1];
      const auto n = static_cast<double>(values.size());
      const Moments moments = moments_of(values);
      EXPECT_NEAR(moments.mean, mean, kDeviations * std / std::sqrt(n));
      EXPECT_NEAR(moments.deviation, std, kDeviations * std / std::sqrt(2 * (n - 1)));
    }
  });
}

TEST(InitialWeights, AreNormalAndDifferFromParameterToParameter) {
  for_each_dense_model([](const Json&, const GptModel& model, const Context&) {
    std::set<double> first_values;
    int64_t num_within[3] = {}, num_values = 0, num_parameters = 0;
    for (const Parameter* parameter : model.parameters()) {
      const double std = parameter->options().init_std;
      if (std == 0) continue;
      const std::vector<double> values = testing::values_of(parameter->value());
      ++num_parameters;
      first_values.insert(values[0] / std);
      for (double value : values) {
        ++num_values;
        for (int k = 0; k < 3; ++k) num_within[k] += std::abs(value / std) < k + 1;
      }
    }
    EXPECT_EQ(static_cast<int64_t>(first_values.size()), num_parameters);
    for (int k = 0; k < 3; ++k) {  // the share within k + 1 deviations
      const double share = std::erf((k + 1) / std::sqrt(2)), n = static_cast<double>(num_values);
      EXPECT_NEAR(static_cast<double>(num_within[k]) / n, share, kDeviations * std::sqrt(share * (1 - share) / n));
    }
  });
}

/// Rows [begin, begin + length) of dimension `dim` of a matrix or vector.
std::vector<double> rows_of(const Tensor& whole, int dim, int64_t begin, int64_t length) {
  const std::vector<double> values = testing::values_of(whole);
  const int64_t columns = whole.shape().rank() == 1 ? 1 : whole.size(1);
  std::vector<double> part;
  for (int64_t i = 0; i < whole.size(0); ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (const int64_t at = dim == 0 ? i : j; at >= begin && at < begin + length)
        part.push_back(values[static_cast<size_t>(i * columns + j)]);
  return part;
}

std::vector<double> contiguous_values(const Tensor& x) {
  const ConstView view = x.view();
  std::vector<double> values;
  const int64_t columns = view.shape.rank() == 1 ? 1 : view.shape[1];
  for (int64_t i = 0; i < view.shape[0]; ++i)
    for (int64_t j = 0; j < columns; ++j)
      values.push_back(view.as<float>()[i * view.strides[0] + (columns == 1 ? 0 : j * view.strides[1])]);
  return values;
}

TEST(InitialWeights, OfShardsAreSlicesOfTheWhole) {
  for_each_dense_model([](const Json&, const GptModel& model, const Context& ctx) {
    int num_cut = 0;
    for (const Parameter* whole : model.parameters()) {
      const ParameterOptions& options = whole->options();
      if (options.shard.cuts.empty()) continue;
      const ShardCut& cut = options.shard.cuts.front();
      const int64_t size = cut.num_groups * cut.sections[0].size;
      for (int64_t num_shards : {2, 3, 4}) {
        if (size % num_shards != 0) continue;
        if (cut.num_groups % num_shards != 0 && num_shards % cut.num_groups != 0) continue;
        for (int64_t rank = 0; rank < num_shards; ++rank) {
          ParameterOptions of_shard = options;
          of_shard.place.tensor = {rank, num_shards};
          Parameter shard(ctx, of_shard);
          shard.initialize(ctx);
          for (const ShardBox& box : shard.boxes())
            EXPECT_EQ(contiguous_values(part_of(shard.value(), box.local())),
                      rows_of(whole->value(), cut.dim, box.global.offsets[cut.dim], box.global.sizes[cut.dim]))
                << whole->name() << ", rank " << rank << " of " << num_shards;
        }
        ++num_cut;
      }
    }
    EXPECT_GT(num_cut, 0);
  });
}

}  // namespace
}  // namespace megatron
