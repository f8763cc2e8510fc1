// Experts get the tokens of four ranks as in Megatron Core.
#include "megatron/transformer/moe/token_dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/ops/weighted_rows.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/logged_group.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

using Json = nlohmann::json;

constexpr int kRanks = 4;

ProcessGroupCollection groups_of(RankContext& rank, int ep, int etp) {
  return ProcessGroupCollection::make(
      rank.world,
      ParallelLayout({.world_size = rank.size, .expert_model_parallel_size = ep, .expert_tensor_parallel_size = etp}));
}

Tensor upload(const Context& ctx, const Shape& shape, const std::vector<double>& values) {
  Tensor x = ctx.empty("x", shape, DType::kFloat64);
  write_values<double>(ctx.device, values, x);
  return x;
}

/// The routing that the reference used.
Routing routing_of(const Context& ctx, const Json& of_rank) {
  std::vector<double> probs;
  std::vector<uint8_t> bits;
  for (const Json& row : of_rank["prob"])
    for (const Json& value : row) probs.push_back(value);
  for (const Json& row : of_rank["map"])
    for (const char bit : row.get<std::string>()) bits.push_back(bit == '1');
  const auto t = static_cast<int64_t>(of_rank["map"].size());
  const Shape shape{t, static_cast<int64_t>(bits.size()) / t};
  Tensor map = ctx.empty("map", shape, DType::kUInt8);
  write_values<uint8_t>(ctx.device, bits, map);
  return {.probs = upload(ctx, shape, probs), .map = map};
}

/// Token j of rank r is [r, j, 1, noise]. The noise is not recorded: it is what a gradient of the token's probabilities
/// has beyond the other three.
Tensor tokens_of(const Context& ctx, int rank, const Json& of_rank) {
  std::vector<double> values;
  const auto t = static_cast<int64_t>(of_rank["map"].size());
  for (int64_t j = 0; j < t; ++j) {
    const size_t expert = of_rank["map"][static_cast<size_t>(j)].get<std::string>().find('1');
    double noise = 0;
    if (expert != std::string::npos)
      noise = of_rank["dprob"][static_cast<size_t>(j)][expert].get<double>() / static_cast<double>(1 + expert) -
              static_cast<double>(rank + j + 1);
    values.insert(values.end(), {static_cast<double>(rank), static_cast<double>(j), 1.0, noise});
  }
  return upload(ctx, {t, 4}, values);
}

/// Dispatch, experts that multiply by probability * (1 + expert) / etp, combine; forward and backward.
void expect_golden(RankContext& rank, const Json& test) {
  TestDevice device(DeviceKind::kCpu, 1);
  Context ctx = device.context();
  Tape tape(ctx.device);
  ctx.tape = &tape;
  ctx.mode = GradMode::kRecord;
  const Json& of_rank = test["ranks"][static_cast<size_t>(rank.rank)];
  MoeConfig config;
  config.topk.topk = test["k"];
  config.num_experts = test["experts"];
  if (test["kind"] == "alltoall") config.token_dispatcher_type = TokenDispatcherType::kAllToAll;
  const auto dispatcher = make_token_dispatcher(groups_of(rank, test["ep"], test["etp"]), config);
  if (!dispatcher) return;  // every rank has all experts

  Routing routing = routing_of(ctx, of_rank);
  tape.watch(routing.probs);
  const int64_t t = test["tokens"];
  const DispatchedTokens dispatched = dispatcher->dispatch(ctx, tokens_of(ctx, rank.rank, of_rank), routing, {}, {});
  const auto experts = of_rank["experts"].get<std::vector<int64_t>>();
  ASSERT_EQ(dispatched.routing.map.size(1), std::ssize(experts));
  const Permutation permutation = sort_by_expert(ctx, dispatched.routing.map,
                                                 {.capacity = dispatched.tokens.size(0) * std::ssize(experts),
                                                  .max_experts_per_token = std::ssize(experts),
                                                  .is_exact = false});
  const Tensor rows = permute(ctx, dispatched.tokens, permutation);
  const Tensor probs = permute_probs(ctx, dispatched.routing.probs, permutation);

  const auto offsets = read_values<int32_t>(ctx.device, permutation.groups.offsets);
  std::vector<double> factors(static_cast<size_t>(permutation.groups.capacity), 0);
  size_t row = 0;
  for (size_t e = 0; e < experts.size(); ++e) {
    EXPECT_EQ(offsets[e + 1] - offsets[e], of_rank["sizes"][e].get<int32_t>()) << "expert " << experts[e];
    for (; row < static_cast<size_t>(offsets[e + 1]); ++row)
      factors[row] = static_cast<double>(1 + experts[e]) / test["etp"].get<double>();
  }
  ASSERT_EQ(row, of_rank["rows"].size());
  const double bound = tolerance(DType::kFloat32, 8, 32);  // the reference computed in fp32 and gives 6 digits
  for (size_t r = 0; r < row; ++r) {
    EXPECT_EQ(rows.data<double>()[4 * r], of_rank["rows"][r][0].get<double>()) << "source of row " << r;
    EXPECT_EQ(rows.data<double>()[4 * r + 1], of_rank["rows"][r][1].get<double>()) << "token of row " << r;
    EXPECT_NEAR(probs.data<double>()[r], of_rank["row_prob"][r].get<double>(), bound);
  }

  const Tensor factor = upload(ctx, {permutation.groups.capacity}, factors);
  Tensor y = unpermute(ctx, scale_rows(ctx, scale_rows(ctx, rows, probs), factor), permutation);
  y = dispatcher->combine(ctx, y, dispatched);
  ASSERT_EQ(y.shape(), (Shape{t, 4}));
  for (int64_t j = 0; j < t; ++j)
    EXPECT_NEAR(y.data<double>()[4 * j + 2], of_rank["y"][static_cast<size_t>(j)].get<double>(), bound);

  tape.seed(ctx, y.slot, upload(ctx, y.shape(), std::vector<double>(static_cast<size_t>(4 * t), 1.0)));
  tape.backward(ctx, Phase::kBW, 0);
  const std::vector<double> dprobs = values_of(tape.take_gradient(routing.probs.slot));
  const auto e = static_cast<size_t>(config.num_experts);
  ASSERT_EQ(dprobs.size(), static_cast<size_t>(t) * e);
  for (size_t i = 0; i < dprobs.size(); ++i)
    EXPECT_NEAR(dprobs[i], of_rank["dprob"][i / e][i % e].get<double>(), tolerance(DType::kFloat32, 8, 128)) << i;
}

TEST(TokenDispatcherGolden, RowsProbabilitiesOutputsAndGradientsAreMegatrons) {
  const Json cases = golden_json("parallelism/dispatch.json", "cases");
  ASSERT_EQ(cases.size(), 24);
  for (const Json& test : cases) {
    SCOPED_TRACE(fmt::format("{} ep {} etp {} experts {} k {}", test["kind"].get<std::string>(), test["ep"].get<int>(),
                             test["etp"].get<int>(), test["experts"].get<int>(), test["k"].get<int>()));
    run_ranks(kRanks, [&](RankContext& rank) { expect_golden(rank, test); });
  }
}

TEST(TokenDispatcher, ComputesWhatNeedsNoTokensWhileTheyAreOnTheirWay) {
  const std::pair<TokenDispatcherType, const char*> cases[] = {
      {TokenDispatcherType::kAllGather, "all_gather wait all_gather wait all_gather meanwhile wait "},
      {TokenDispatcherType::kAllToAll, "all_to_all wait all_to_all wait all_to_all meanwhile wait "}};
  for (const auto& [type, expected] : cases)
    run_ranks(2, [&](RankContext& rank) {
      TestDevice device(DeviceKind::kCpu, 1);
      Context ctx = device.context();
      RankLog log;
      ProcessGroupCollection groups =
          ProcessGroupCollection::make(rank.world, ParallelLayout({.world_size = 2, .expert_model_parallel_size = 2}));
      LoggedGroup ep(groups.ep, rank.world.recorder(), log), tp_ep(groups.tp_ep, rank.world.recorder(), log);
      groups.ep = ep.group();
      groups.tp_ep = tp_ep.group();
      MoeConfig config;
      config.num_experts = 2;
      config.token_dispatcher_type = type;
      Tensor map = ctx.empty("map", {3, 2}, DType::kUInt8);
      write_values<uint8_t>(ctx.device, std::vector<uint8_t>{1, 0, 0, 1, 1, 0}, map);
      const Routing routing{.probs = upload(ctx, {3, 2}, {1, 0, 0, 1, 1, 0}), .map = map};
      const Tensor tokens = upload(ctx, {3, 2}, {1, 2, 3, 4, 5, 6});
      const auto dispatcher = make_token_dispatcher(groups, config);
      dispatcher->dispatch(ctx, tokens, routing, {}, [&] { log += "meanwhile "; });
      EXPECT_EQ(log, expected);
    });
}

}  // namespace
}  // namespace megatron::testing
