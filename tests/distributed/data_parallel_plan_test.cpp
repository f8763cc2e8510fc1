#include "megatron/distributed/data_parallel_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "megatron/base/error.h"
#include "tests/testing/golden_json.h"

namespace megatron {
namespace {

using Json = nlohmann::json;

DType dtype_of_name(const std::string& name) { return name == "bf16" ? DType::kBFloat16 : DType::kFloat32; }

std::vector<PlannedParameter> parameters_of(const Json& test) {
  std::vector<PlannedParameter> parameters;
  for (const Json& item : test["params"]) {  // [name, shape, dtype, flags..]
    const auto has = [&](const char* flag) { return std::find(item.begin() + 3, item.end(), flag) != item.end(); };
    int64_t size = 1;
    for (const Json& extent : item[1]) size *= extent.get<int64_t>();
    parameters.push_back({.num_elements = size,
                          .dtype = dtype_of_name(item[2]),
                          .is_trainable = !has("frozen"),
                          .is_expert = has("expert"),
                          .is_shared_embedding = has("tied")});
  }
  return parameters;
}

DataParallelPlan plan_of(const Json& test) {
  const int64_t dp = test["dp"], dp_cp = dp * test["cp"].get<int64_t>();
  DistributedDataParallelConfig config{.grad_reduce_in_fp32 = test["fp32_reduce"],
                                       .overlap_grad_reduce = test["overlap"],
                                       .use_distributed_optimizer = test["dist_opt"],
                                       .calculate_per_token_loss = test.value("per_token", false),
                                       .average_in_collective = test.value("average", false),
                                       .pad_buckets_for_high_nccl_busbw = test.value("pad_high", false),
                                       .num_distributed_optimizer_instances = test.value("instances", 1)};
  if (!test["bucket_size"].is_null()) config.bucket_size = test["bucket_size"].get<int64_t>();
  const DataParallelSizes sizes{.dp = dp,
                                .dp_cp = dp_cp,
                                .expt_dp = dp_cp / test["ep"].get<int64_t>(),
                                .pipeline_rank = test.value("last_stage", false) ? test["pp"].get<int64_t>() - 1 : 0,
                                .chunk = test.value("no_buckets", false) ? 1 : 0};
  return DataParallelPlan::make(parameters_of(test), sizes, config);
}

Json to_json(const ElementRange& range) { return {range.begin, range.end}; }

/// A buffer in the form of the file.
Json to_json(const BufferPlan& buffer, const Json& test) {
  const auto name = [&](size_t entry) { return test["params"][buffer.parameters[entry]][0]; };
  const auto dtype = [](DType d) { return d == DType::kBFloat16 ? "bf16" : "f32"; };
  const BufferLayout& layout = buffer.layout;
  Json json{{"kind", buffer.is_expert ? "expert" : "dense"},
            {"param_dtype", dtype(buffer.param_dtype)},
            {"grad_dtype", dtype(buffer.grad_dtype)},
            {"group_size", layout.data_parallel_size},
            {"scale", buffer.gradient_scaling_factor},
            {"numel", layout.num_elements()},
            {"numel_unpadded", layout.num_unpadded()},
            {"has_param_data", test["dist_opt"]},
            {"params", Json::array()},
            {"buckets", Json::array()}};
  for (const BufferLayout::Bucket& bucket : layout.buckets) {
    Json names = Json::array();
    for (size_t entry : bucket.entries) {
      const BufferLayout::Slot& slot = layout.slots[entry];
      json["params"].push_back({name(entry), slot.range.begin, slot.range.end, slot.bucket});
      names.push_back(name(entry));
    }
    json["buckets"].push_back({bucket.range.begin, bucket.range.end, bucket.num_unpadded, names});
  }
  for (int64_t rank = 0; test["dist_opt"] && rank < layout.data_parallel_size; ++rank) {
    Json shards = Json::array();
    for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
      Json pieces = Json::array();
      for (const BufferLayout::Piece& piece : layout.pieces(bucket, rank))
        pieces.push_back({name(piece.entry), to_json(piece.in_buffer), to_json(piece.in_bucket),
                          to_json(piece.in_shard), to_json(piece.in_parameter)});
      shards.push_back(pieces);
    }
    json["shards"].push_back(shards);
  }
  return json;
}

/// Groups as [kind, number of the buffer among its kind, bucket].
Json groups_of(const DataParallelPlan& plan) {
  const auto num_dense = std::count_if(plan.buffers.begin(), plan.buffers.end(), [](auto& b) { return !b.is_expert; });
  Json groups = Json::array();
  for (const auto& group : plan.groups) {
    Json buckets = Json::array();
    for (const DataParallelPlan::Bucket& bucket : group) {
      const bool is_expert = plan.buffers[bucket.buffer].is_expert;
      buckets.push_back({is_expert ? "expert" : "dense",
                         bucket.buffer - (is_expert ? static_cast<size_t>(num_dense) : 0), bucket.bucket});
    }
    groups.push_back(buckets);
  }
  return groups;
}

TEST(DataParallelPlan, BuffersBucketsAndShardsAreMegatrons) {
  const Json cases = testing::golden_json("parallelism/buffers.json", "cases");
  ASSERT_FALSE(cases.empty());
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json& test = cases[i];
    SCOPED_TRACE(i);
    if (test.contains("error")) {
      EXPECT_THROW(plan_of(test), ConfigError);
      continue;
    }
    const DataParallelPlan plan = plan_of(test);
    EXPECT_EQ(plan.bucket_size ? Json(*plan.bucket_size) : Json(), test["effective_bucket_size"]);
    ASSERT_EQ(plan.buffers.size(), test["buffers"].size());
    for (size_t b = 0; b < plan.buffers.size(); ++b) EXPECT_EQ(to_json(plan.buffers[b], test), test["buffers"][b]);
    EXPECT_EQ(groups_of(plan), test["groups"]);
  }
}

TEST(DataParallelPlan, NumBucketsGivesTheBucketSize) {
  const std::vector<PlannedParameter> parameters(7, {.num_elements = 100});
  const auto plan = [&](int64_t num_buckets) {
    return DataParallelPlan::make(parameters, {.dp = 2, .dp_cp = 2, .expt_dp = 2},
                                  {.overlap_grad_reduce = true, .num_buckets = num_buckets});
  };
  EXPECT_EQ(plan(3).bucket_size, 233);
  EXPECT_EQ(plan(3).groups.size(), 3U);
  EXPECT_EQ(plan(700'000).groups.size(), 7U) << "a bucket has at least one parameter";
}

TEST(DataParallelPlan, GradientsOfFp64AreFp64) {
  const std::vector<PlannedParameter> parameters = {{.num_elements = 3, .dtype = DType::kFloat64}};
  EXPECT_EQ(DataParallelPlan::make(parameters, {}, {}).buffers.at(0).grad_dtype, DType::kFloat64);
}

TEST(DataParallelPlan, RefusesContradictions) {
  const auto make = [](const DataParallelSizes& sizes, const DistributedDataParallelConfig& config) {
    return DataParallelPlan::make({}, sizes, config);
  };
  EXPECT_THROW(
      make({.dp_cp = 4, .expt_dp = 4}, {.use_distributed_optimizer = true, .num_distributed_optimizer_instances = 3}),
      ConfigError);
  EXPECT_THROW(make({}, {.bucket_size = 3, .num_buckets = 3}), ConfigError);
  EXPECT_THROW(make({}, {.bucket_size = 0}), ConfigError);
}

}  // namespace
}  // namespace megatron
