// Permutation, dropping, padding and capacity against Megatron Core.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/ops/permute.h"
#include "megatron/ops/router.h"
#include "megatron/ops/weighted_rows.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

using Json = nlohmann::json;

Json golden(const char* key) { return golden_json("parallelism/moe.json", key); }

/// Maps are strings of 0 and 1, one a token.
std::vector<uint8_t> bits(const Json& rows) {
  std::vector<uint8_t> map;
  for (const Json& row : rows)
    for (const char bit : row.get<std::string>()) map.push_back(bit == '1');
  return map;
}
Tensor upload_map(const Context& ctx, const Json& test) {
  const auto rows = static_cast<int64_t>(test["map"].size());
  Tensor map = ctx.empty("map", {rows, static_cast<int64_t>(test["map"][0].get<std::string>().size())}, DType::kUInt8);
  write_values<uint8_t>(ctx.device, bits(test["map"]), map);
  return map;
}
std::vector<double> numbers(const Json& rows) {
  std::vector<double> values;
  for (const Json& row : rows)
    for (const Json& value : row) values.push_back(value);
  return values;
}
Tensor upload_probs(const Context& ctx, const Json& test) {
  Tensor probs = ctx.empty("probs", {test["tokens"], test["experts"]}, DType::kFloat64);
  write_values<double>(ctx.device, numbers(test["prob"]), probs);
  return probs;
}

TEST(PermutationGolden, RowsProbabilitiesAndSumsAreMegatrons) {
  const Json cases = golden("permute");
  ASSERT_EQ(cases.size(), 16);
  for (const Json& test : cases) {
    TestDevice device;
    Context ctx = device.context();
    const int64_t tokens = test["tokens"], topk = test["k"];
    const Permutation p =
        sort_by_expert(ctx, upload_map(ctx, test), {.capacity = tokens * topk, .max_experts_per_token = topk});
    EXPECT_EQ(read_values<int32_t>(ctx.device, p.tokens), test["row_token"].get<std::vector<int32_t>>());
    const Tensor probs = permute_probs(ctx, upload_probs(ctx, test), p);
    EXPECT_EQ(values_of(probs), test["row_prob"].get<std::vector<double>>());
    Tensor x = ctx.empty("x", {tokens, 1}, DType::kFloat64);
    for (int64_t t = 0; t < tokens; ++t) x.data<double>()[t] = static_cast<double>(t);
    const Tensor rows = permute(ctx, x, p);
    EXPECT_EQ(values_of(unpermute(ctx, rows, p)), test["sum"].get<std::vector<double>>());
    const std::vector<double> weighted = values_of(unpermute(ctx, scale_rows(ctx, rows, probs), p));
    for (size_t t = 0; t < weighted.size(); ++t)
      EXPECT_NEAR(weighted[t], test["weighted"][t].get<double>(), 1e-5 * static_cast<double>(tokens))
          << "written with five digits, from probabilities with six";
  }
}

TEST(TokenDropGolden, LoadsAndKeptProbabilitiesAreMegatrons) {
  const Json cases = golden("drop");
  ASSERT_EQ(cases.size(), 24);
  for (const Json& test : cases) {
    TestDevice device;
    Context ctx = device.context();
    const int64_t tokens = test["tokens"], experts = test["experts"];
    const int64_t capacity = kernels::expert_capacity(tokens, test["k"], experts, test["factor"]);
    EXPECT_EQ(capacity, test["capacity"].get<int64_t>());
    const bool by_probs = test["policy"] == "probs", pad = test["pad"];
    const Routing kept =
        drop_tokens(ctx, {upload_probs(ctx, test), upload_map(ctx, test)},
                    {.capacity = capacity,
                     .policy = by_probs ? kernels::TokenDropPolicy::kProbs : kernels::TokenDropPolicy::kPosition,
                     .pad = pad});
    std::vector<int64_t> loads(static_cast<size_t>(experts));
    const std::vector<uint8_t> map = read_values<uint8_t>(ctx.device, kept.map);
    for (size_t i = 0; i < map.size(); ++i) loads[i % loads.size()] += map[i];
    EXPECT_EQ(loads, test["kept_per_expert"].get<std::vector<int64_t>>());
    if (by_probs) {
      EXPECT_EQ(values_of(kept.probs), numbers(test["kept_prob"]));
    }
  }
}

TEST(TokenDrop, ByPositionKeepsTheFirstTokensAndPadsWithTheFirstThatWereNotRouted) {
  TestDevice device;
  Context ctx = device.context();
  const Json test = {{"map", {"01", "10", "10", "10", "00"}},
                     {"tokens", 5},
                     {"experts", 2},
                     {"prob", {{0, 0.5}, {0.1, 0}, {0.2, 0}, {0.3, 0}, {0, 0}}}};
  const Routing routing{upload_probs(ctx, test), upload_map(ctx, test)};
  const auto drop = [&](bool pad) {
    return drop_tokens(ctx, routing, {.capacity = 2, .policy = kernels::TokenDropPolicy::kPosition, .pad = pad});
  };
  EXPECT_EQ(read_values<uint8_t>(ctx.device, drop(false).map), bits({"01", "10", "10", "00", "00"}));
  EXPECT_EQ(read_values<uint8_t>(ctx.device, drop(true).map), bits({"01", "11", "10", "00", "00"}));
  EXPECT_EQ(values_of(drop(true).probs), (std::vector<double>{0, 0.5, 0.1, 0, 0.2, 0, 0, 0, 0, 0}));
}

TEST(PadRoutingMapGolden, AddsTheFirstTokensThatWereNotRouted) {
  const Json cases = golden("pad");
  ASSERT_EQ(cases.size(), 12);
  for (const Json& test : cases) {
    TestDevice device;
    const Context ctx = device.context();
    EXPECT_EQ(read_values<uint8_t>(ctx.device, pad_routing_map(ctx, upload_map(ctx, test), test["multiple"])),
              bits(test["padded"]));
  }
}

TEST(ExpertCapacityGolden, IsMegatrons) {
  for (const Json& row : golden("capacity")) {
    if (!row[3].is_null()) continue;  // a minimum, which no flag sets
    EXPECT_EQ(kernels::expert_capacity(row[0], 1, row[1], row[2]), row[4].get<int64_t>()) << row;
  }
}

}  // namespace
}  // namespace megatron::testing
