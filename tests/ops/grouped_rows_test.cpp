// Tokens to the rows of their experts, linear layers of experts, and back.
#include <gtest/gtest.h>

#include "megatron/ops/add.h"
#include "megatron/ops/grouped_linear.h"
#include "megatron/ops/permute.h"
#include "megatron/ops/router.h"
#include "megatron/ops/weighted_activation.h"
#include "megatron/ops/weighted_rows.h"
#include "tests/testing/op_case.h"

namespace megatron::testing {
namespace {

constexpr int64_t kTokens = 5, kExperts = 4;
/// Expert 2 has no token, token 3 no expert.
const std::vector<uint8_t> kMap = {1, 1, 0, 0,  //
                                   0, 1, 0, 1,  //
                                   1, 1, 0, 0,  //
                                   0, 0, 0, 0,  //
                                   0, 0, 0, 1};

/// Probabilities are float32 at least.
Tensor as_probs(Context& ctx, const Tensor& x) {
  return cast(ctx, x, x.dtype() == DType::kFloat64 ? x.dtype() : DType::kFloat32);
}

/// 7 rows: as many as the capacity, or fewer.
Permutation permutation_of(const Context& ctx, int64_t capacity) {
  Tensor map = ctx.empty("map", {kTokens, kExperts}, DType::kUInt8, MemoryUse::kData);
  write_values<uint8_t>(ctx.device, kMap, map);
  return sort_by_expert(ctx, map, {.capacity = capacity, .max_experts_per_token = 2, .is_exact = capacity == 7});
}

TEST(SortByExpert, OrdersRowsByExpertThenTokenAndListsTheRowsOfEachToken) {
  for (const int64_t capacity : {7, 9}) {
    TestDevice test;
    Context ctx = test.context();
    const Permutation p = permutation_of(ctx, capacity);
    EXPECT_EQ(read_values<int32_t>(ctx.device, p.groups.offsets), (std::vector<int32_t>{0, 2, 5, 5, 7}));
    std::vector<int32_t> tokens = {0, 2, 0, 1, 2, 1, 4};
    tokens.resize(static_cast<size_t>(capacity), -1);
    EXPECT_EQ(read_values<int32_t>(ctx.device, p.tokens), tokens);
    EXPECT_EQ(read_values<int32_t>(ctx.device, p.slots), (std::vector<int32_t>{0, 2, 3, 5, 1, 4, -1, -1, 6, -1}));
    EXPECT_EQ(p.groups.count.defined(), capacity == 9);
  }
}

TEST(RowGroups, FindTheGroupOfEachRowPastEmptyGroupsAndStopAtTheCapacity) {
  const std::vector<int32_t> offsets = {0, 0, 2, 2, 5};
  const RowGroupsView groups{offsets.data(), 4, 5};
  EXPECT_EQ(groups.group_of(0), 1);
  EXPECT_EQ(groups.group_of(1), 1);
  EXPECT_EQ(groups.group_of(2), 3);
  EXPECT_EQ(groups.group_of(5), 4);
  const RowGroupsView cut{offsets.data(), 4, 3};
  EXPECT_EQ(cut.end(3), 3);
  EXPECT_EQ(cut.num_rows(), 3);
}

TEST(Permute, ThereAndBackPassesAllChecksForExactAndBoundedRows) {
  for (const int64_t capacity : {7, 9})
    check({.name = fmt::format("permute, capacity {}", capacity),
           .inputs = {{kTokens, 6}},
           .parameters = {},
           .forward =
               [=](Context& ctx, OpOperands& o) {
                 const Permutation p = permutation_of(ctx, capacity);
                 return std::vector{unpermute(ctx, permute(ctx, o.inputs[0], p), p)};
               },
           .reduction_length = 2});
}

TEST(PermuteProbs, PassesAllChecks) {
  for (const int64_t capacity : {7, 9})
    check({.name = "permute_probs",
           .inputs = {{kTokens, kExperts}},
           .parameters = {},
           .forward =
               [=](Context& ctx, OpOperands& o) {
                 return std::vector{permute_probs(ctx, as_probs(ctx, o.inputs[0]), permutation_of(ctx, capacity))};
               },
           .dtypes = {DType::kFloat32}});
}

TEST(ScaleRows, PassesAllChecks) {
  check({.name = "scale_rows",
         .inputs = {{7, 9}, {7}},
         .parameters = {},
         .forward = [](Context& ctx, OpOperands& o) { return std::vector{scale_rows(ctx, o.inputs[0], o.inputs[1])}; },
         .reduction_length = 9,
         .magnitude = 2});
}

TEST(WeightedActivation, PassesAllChecksPlainAndGated) {
  using kernels::Activation;
  for (const Activation kind : {Activation::kGelu, Activation::kSilu, Activation::kSquaredRelu})
    for (const bool is_gated : {false, true})
      check({.name = fmt::format("weighted_activation {} {}", static_cast<int>(kind), is_gated),
             .inputs = {{7, 10}, {7}},
             .parameters = {},
             .forward =
                 [=](Context& ctx, OpOperands& o) {
                   const ActivationChoice choice{.kind = kind, .is_gated = is_gated, .gate = {.linear_offset = 0.5}};
                   return std::vector{weighted_activation(ctx, o.inputs[0], o.inputs[1], choice)};
                 },
             .reduction_length = 10,
             .magnitude = 4});
}

TEST(GroupedLinear, PassesAllChecksWithAnEmptyGroupForExactAndBoundedRows) {
  for (const int64_t capacity : {7, 9})
    check({.name = fmt::format("grouped_linear, capacity {}", capacity),
           .inputs = {{kTokens, 6}},
           .parameters = {{.shape = {kExperts, 3, 6}}},
           .forward =
               [=](Context& ctx, OpOperands& o) {
                 const Permutation p = permutation_of(ctx, capacity);
                 const Tensor rows = grouped_linear(ctx, permute(ctx, o.inputs[0], p), p.groups, *o.parameters[0]);
                 return std::vector{unpermute(ctx, rows, p)};
               },
           .reduction_length = 18,
           .magnitude = 2});
}

TEST(GroupedBias, PassesAllChecksWithAndWithoutWeights) {
  for (const bool is_weighted : {false, true})
    check({.name = fmt::format("grouped_bias {}", is_weighted),
           .inputs = {{kTokens, 6}, {kTokens, kExperts}},
           .parameters = {{.shape = {kExperts, 6}}},
           .forward =
               [=](Context& ctx, OpOperands& o) {
                 const Permutation p = permutation_of(ctx, 9);
                 const Tensor weights = permute_probs(ctx, as_probs(ctx, o.inputs[1]), p);
                 const Tensor rows = permute(ctx, o.inputs[0], p);
                 return std::vector{
                     unpermute(
                         ctx, grouped_bias(ctx, rows, p.groups, *o.parameters[0], is_weighted ? weights : Tensor()), p),
                     weights};
               },
           .reduction_length = 12,
           .magnitude = 2});
}

TEST(GroupedLinear, ManyRowsOfUnequalGroupsPassAllChecks) {
  constexpr int64_t kRows = 46;  // groups of 5, 0 and 41: the last is computed in two pieces
  check({.name = "grouped_linear of 46 rows",
         .inputs = {{kRows, 2}},
         .parameters = {{.shape = {3, 2, 2}}},
         .forward =
             [](Context& ctx, OpOperands& o) {
               Tensor map = ctx.empty("map", {kRows, 3}, DType::kUInt8, MemoryUse::kData);
               std::vector<uint8_t> values;
               for (int64_t t = 0; t < kRows; ++t)
                 for (const int64_t expert : {0, 1, 2}) values.push_back(expert == (t % 10 == 0 ? 0 : 2));
               write_values<uint8_t>(ctx.device, values, map);
               const Permutation p = sort_by_expert(ctx, map, {.capacity = kRows, .max_experts_per_token = 1});
               const Tensor rows = grouped_linear(ctx, permute(ctx, o.inputs[0], p), p.groups, *o.parameters[0]);
               return std::vector{unpermute(ctx, rows, p)};
             },
         .reduction_length = 46,
         .magnitude = 2});
}

/// Tokens to the experts that their logits choose, and back, as a layer does.
TEST(RoutedExperts, PassAllChecksWithAndWithoutACapacity) {
  for (const bool has_capacity : {false, true})
    check({.name = fmt::format("routed experts, capacity {}", has_capacity),
           .inputs = {{6, 4}, {6, 5}},
           .parameters = {{.shape = {5, 6, 4}}, {.shape = {5, 4, 3}}},
           .forward =
               [=](Context& ctx, OpOperands& o) {
                 Routing routing = router_topk(ctx, as_probs(ctx, o.inputs[1]), {}, {}, {.topk = 2});
                 if (has_capacity) routing = drop_tokens(ctx, routing, {.capacity = 2});
                 const Permutation p = sort_by_expert(
                     ctx, routing.map,
                     {.capacity = has_capacity ? 10 : 12, .max_experts_per_token = 2, .is_exact = !has_capacity});
                 const Tensor up = grouped_linear(ctx, permute(ctx, o.inputs[0], p), p.groups, *o.parameters[0]);
                 const ActivationChoice swiglu{.kind = kernels::Activation::kSilu, .is_gated = true, .gate = {}};
                 const Tensor active = weighted_activation(ctx, up, permute_probs(ctx, routing.probs, p), swiglu);
                 return std::vector{unpermute(ctx, grouped_linear(ctx, active, p.groups, *o.parameters[1]), p)};
               },
           .reduction_length = 40,
           .magnitude = 4,
           .dtypes = {DType::kFloat32}});  // rounding of lower precisions changes the choice
}

TEST(GroupedLinear, RejectsRowsOfAnotherRouting) {
  TestDevice test(DeviceKind::kMeta);
  Context ctx = test.context();
  const Permutation bounded = permutation_of(ctx, 9), exact = permutation_of(ctx, 7);
  const Tensor x = ctx.empty("x", {kTokens, 6}, DType::kFloat32);
  EXPECT_THROW(unpermute(ctx, permute(ctx, x, exact), bounded), ShapeError);
  EXPECT_THROW(unpermute(ctx, permute(ctx, x, bounded), permutation_of(ctx, 9)), ShapeError);
  EXPECT_THROW(permute(ctx, ctx.empty("x", {4, 6}, DType::kFloat32), exact), ShapeError);
}

}  // namespace
}  // namespace megatron::testing
