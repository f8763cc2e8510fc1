#include "megatron/ops/attention.h"

#include <gtest/gtest.h>

#include <array>

#include "megatron/autograd/tape.h"
#include "megatron/ops/embedding.h"
#include "megatron/ops/rms_norm.h"
#include "megatron/ops/rope.h"
#include "megatron/ops/split_qkv.h"
#include "tests/testing/op_run.h"

namespace megatron::testing {
namespace {

constexpr int64_t s = 7, b = 2;

OpCase attention_case(std::string name, const AttentionOptions& options, int64_t num_groups) {
  return {.name = std::move(name),
          .inputs = {{s, b, 4, 6}, {s, b, num_groups, 6}, {s, b, num_groups, 5}},
          .parameters = {},
          .forward =
              [=](Context& ctx, OpOperands& o) {
                const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = s, .b = b});
                Parameter* sink = o.parameters.empty() ? nullptr : o.parameters[0].get();
                return std::vector{attention(ctx, o.inputs[0], o.inputs[1], o.inputs[2], layout, options, sink)};
              },
          .reduction_length = 6 * s,
          .magnitude = 4};
}

TEST(Attention, PassesAllChecksForGroupsWindowsAndDropout) {
  check(attention_case("attention", {.scale = 0.4}, 4));
  check(attention_case("grouped queries", {.scale = 0.4}, 2));
  check(attention_case("one key head, window", {.scale = 0.4, .window_left = 2, .window_right = 0}, 1));
  check(attention_case("off by one", {.scale = 0.4, .softmax = kernels::AttentionSoftmax::kOffByOne}, 2));
  check(attention_case("dropout", {.scale = 0.4, .dropout = 0.3, .path = "layer.attention"}, 2));
}

TEST(Attention, GivesItsSinkAGradient) {
  OpCase op = attention_case("sink", {.scale = 0.4, .softmax = kernels::AttentionSoftmax::kLearnable}, 2);
  op.parameters.push_back({.shape = {4}});
  check(op);
}

TEST(Attention, TreatsPackedSequencesAsSeparateOnes) {
  OpCase op = attention_case("packed", {.scale = 0.4}, 2);
  op.forward = [](Context& ctx, OpOperands& o) {
    const SequenceLayout layout = SequenceLayout::cut_at(ctx, {.s = s, .b = b}, {{3}, {1, 6}}, {});
    return std::vector{attention(ctx, o.inputs[0], o.inputs[1], o.inputs[2], layout, {.scale = 0.4}, nullptr)};
  };
  check(op);
}

/// Operations of forward and backward of three queries on three keys, n = 4, d = 6, dv = 5.
std::array<int64_t, 2> counted_operations(const AttentionOptions& options) {
  TestDevice test(DeviceKind::kMeta);
  Context ctx = test.context();
  Tape tape(test.device);
  ctx.tape = &tape;
  ctx.mode = GradMode::kRecord;
  Tensor q = ctx.empty("q", {3, 1, 4, 6}, DType::kFloat32), k = ctx.empty("k", {3, 1, 2, 6}, DType::kFloat32);
  Tensor v = ctx.empty("v", {3, 1, 2, 5}, DType::kFloat32);
  for (Tensor* t : {&q, &k, &v}) tape.watch(*t);
  const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = 3, .b = 1});
  const Tensor y = attention(ctx, q, k, v, layout, options, nullptr);
  const int64_t forward = test.device.num_operations;
  tape.seed(ctx, y.slot, ctx.empty_like("dy", y));
  tape.backward(ctx, Phase::kBW, 0);
  return {forward, test.device.num_operations - forward};
}

TEST(Attention, CountsTheOperationsOfUnmaskedPairs) {
  // A pair of rows takes q k^T with d and p v with dv in forward; backward has the scores again, dq, dk with d, dp, dv
  // with dv.
  const auto expected = [](int64_t pairs) {
    return std::array{pairs * 4 * 2 * (6 + 5), pairs * 4 * 2 * (3 * 6 + 2 * 5)};
  };
  EXPECT_EQ(counted_operations({}), expected(6));
  EXPECT_EQ(counted_operations({.window_left = 1}), expected(5));
  EXPECT_EQ(counted_operations({.is_causal = false}), expected(9));
  EXPECT_EQ(counted_operations({.is_causal = false, .window_left = 0, .window_right = 1}), expected(5));
}

TEST(Attention, RejectsHeadsThatDoNotFit) {
  TestDevice test;
  Context ctx = test.context();
  const auto tensor = [&](const Shape& shape) { return ctx.empty("x", shape, DType::kFloat32); };
  const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = s, .b = b});
  EXPECT_THROW(attention(ctx, tensor({s, b, 4, 6}), tensor({s, b, 3, 6}), tensor({s, b, 3, 6}), layout, {}, nullptr),
               ShapeError);
  EXPECT_THROW(
      attention(ctx, tensor({s + 1, b, 4, 6}), tensor({s, b, 4, 6}), tensor({s, b, 4, 6}), layout, {}, nullptr),
      ShapeError);
}

TEST(SplitQkv, PassesAllChecks) {
  check({.name = "split_qkv",
         .inputs = {{3, 2, 2 * (3 + 2) * 4}},
         .parameters = {},
         .forward = [](Context& ctx, OpOperands& o) {
           QueryKeyValue out = split_qkv(ctx, o.inputs[0], {.num_groups = 2, .num_heads = 6});
           return std::vector{out.query, out.key, out.value};
         }});
}

TEST(SplitQkv, WithGatesPassesAllChecks) {
  check({.name = "split_qkv with gates",
         .inputs = {{3, 2, 2 * (3 + 3 + 2) * 4}},
         .parameters = {},
         .forward = [](Context& ctx, OpOperands& o) {
           QueryKeyValue out = split_qkv(ctx, o.inputs[0], {.num_groups = 2, .num_heads = 6, .has_gates = true});
           return std::vector{out.query, out.key, out.value, out.gate};
         }});
}

/// Megatron Core's order: in each group all queries, all gates, the key, the value.
TEST(SplitQkv, TakesTheGatesOfAGroupBehindItsQueries) {
  TestDevice test(DeviceKind::kCpu, 1);
  Context ctx = test.context();
  Tensor mixed = ctx.empty("mixed", {1, 1, 2 * (2 + 2 + 2)}, DType::kFloat32);
  for (int64_t i = 0; i < mixed.num_elements(); ++i) mixed.data<float>()[i] = static_cast<float>(i);
  const QueryKeyValue x = split_qkv(ctx, mixed, {.num_groups = 2, .num_heads = 4, .has_gates = true});
  EXPECT_EQ(values_of(x.query), (std::vector<double>{0, 1, 6, 7}));
  EXPECT_EQ(values_of(x.gate), (std::vector<double>{2, 3, 8, 9}));
  EXPECT_EQ(values_of(x.key), (std::vector<double>{4, 10}));
  EXPECT_EQ(values_of(x.value), (std::vector<double>{5, 11}));
}

/// Attention of the parts of one projection, each of 4 heads of 8.
OpCase projected_attention(QkvParts parts, bool packs_gradients, bool is_packed_layout = false) {
  return {.name = "attention of a projection",
          .inputs = {{s, b, 4 * 3 * 8}},
          .parameters = {},
          .forward =
              [=](Context& ctx, OpOperands& o) {
                const QueryKeyValue x = split_qkv(ctx, o.inputs[0], {.num_groups = 4, .num_heads = 4}, parts);
                const SequenceLayout layout = is_packed_layout
                                                  ? SequenceLayout::cut_at(ctx, {.s = s, .b = b}, {{3}, {1, 6}}, {})
                                                  : SequenceLayout::uniform(ctx, {.s = s, .b = b});
                const AttentionOptions options{.scale = 0.4, .packs_gradients = packs_gradients};
                return std::vector{attention(ctx, x.query, x.key, x.value, layout, options, nullptr)};
              },
          .reduction_length = 8 * s,
          .magnitude = 4};
}

TEST(SplitQkv, GivesAttentionViewsOfTheParts) {
  for (bool is_packed_layout : {false, true}) check(projected_attention(QkvParts::kViews, true, is_packed_layout));
}

TEST(SplitQkv, ViewsGiveTheBitsOfCopies) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const OpOutcome copies = run(projected_attention(QkvParts::kCopies, false), {.dtype = dtype});
    for (bool packs_gradients : {false, true}) {
      const OpOutcome views = run(projected_attention(QkvParts::kViews, packs_gradients), {.dtype = dtype});
      EXPECT_EQ(views.outputs, copies.outputs);
      EXPECT_EQ(views.gradients, copies.gradients);
      EXPECT_LE(views.peak_bytes, copies.peak_bytes);
    }
  }
}

TEST(SplitQkv, CopiesGradientsThatAreNotPacked) {
  check({.name = "views with a gradient each",
         .inputs = {{3, 2, 4 * 3 * 4}},
         .parameters = {},
         .forward =
             [](Context& ctx, OpOperands& o) {
               const QueryKeyValue x = split_qkv(ctx, o.inputs[0], {.num_groups = 4, .num_heads = 4}, QkvParts::kViews);
               return std::vector{rms_norm(ctx, x.query, nullptr, {}), rms_norm(ctx, x.value, nullptr, {})};
             },
         .reduction_length = 4,
         .magnitude = 4});
}

TEST(SplitQkv, RejectsViewsOfSeveralQueriesInAGroup) {
  TestDevice test;
  Context ctx = test.context();
  EXPECT_THROW(split_qkv(ctx, ctx.empty("x", {3, 2, 2 * (3 + 2) * 4}, DType::kFloat32),
                         {.num_groups = 2, .num_heads = 6}, QkvParts::kViews),
               ShapeError);
}

TEST(Rope, PassesAllChecksForBothPairings) {
  for (const auto pairs : {kernels::RopePairs::kHalves, kernels::RopePairs::kInterleaved})
    check({.name = "rope",
           .inputs = {{s, b, 3, 8}},
           .parameters = {},
           .forward =
               [=](Context& ctx, OpOperands& o) {
                 const RopeTable table =
                     RopeTable::make(ctx, {.head_size = 8, .percent = 0.75}, pairs, s, o.inputs[0].dtype());
                 const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = s, .b = b});
                 return std::vector{rope(ctx, o.inputs[0], table, layout)};
               },
           .reduction_length = 2});
}

/// Heads of 16 and of 6, which no pack divides; a layout whose columns differ in positions.
OpCase rotated_projection(int64_t d, bool at_once, kernels::RopePairs pairs, bool has_gates) {
  const MixedHeads heads{.num_groups = 2, .num_heads = 6, .has_gates = has_gates};
  return {.name = "rotated heads of a projection",
          .inputs = {{s, b, 2 * heads.group_size() * d}},
          .parameters = {},
          .forward =
              [=](Context& ctx, OpOperands& o) {
                const RopeTable table = RopeTable::make(ctx, {.head_size = d, .percent = d == 16 ? 1.0 : 0.7}, pairs, s,
                                                        o.inputs[0].dtype());
                const SequenceLayout layout = SequenceLayout::cut_at(ctx, {.s = s, .b = b}, {{3}, {1, 6}}, {});
                QueryKeyValue x = at_once ? split_rotated_qkv(ctx, o.inputs[0], heads, table, layout)
                                          : split_qkv(ctx, o.inputs[0], heads);
                if (!at_once) x.query = rope(ctx, x.query, table, layout), x.key = rope(ctx, x.key, table, layout);
                std::vector parts{x.query, x.key, x.value};
                if (has_gates) parts.push_back(x.gate);
                return parts;
              },
          .reduction_length = 2};
}

TEST(Rope, FusedWithTheSplitPassesAllChecksAndHasTheBitsOfTwoOps) {
  for (const auto& [d, has_gates] : {std::pair{16, false}, {6, false}, {6, true}})
    for (const auto pairs : {kernels::RopePairs::kHalves, kernels::RopePairs::kInterleaved}) {
      check(rotated_projection(d, true, pairs, has_gates));
      for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        const OpOutcome one = run(rotated_projection(d, true, pairs, has_gates), {.dtype = dtype});
        const OpOutcome two = run(rotated_projection(d, false, pairs, has_gates), {.dtype = dtype});
        EXPECT_EQ(one.outputs, two.outputs);
        EXPECT_EQ(one.gradients, two.gradients);
      }
    }
}

TEST(Layouts, RejectsKeysOrPositionsOutOfRange) {
  TestDevice test;
  Context ctx = test.context();
  const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = 2, .b = 1, .first_position = 3});  // keys 0 .. 4
  const Tensor q = ctx.empty("q", {2, 1, 2, 4}, DType::kFloat32), k = ctx.empty("k", {4, 1, 2, 4}, DType::kFloat32);
  EXPECT_THROW(attention(ctx, q, k, k, layout, {}, nullptr), ShapeError);
  const RopeTable table = RopeTable::make(ctx, {.head_size = 4}, kernels::RopePairs::kHalves, 4, DType::kFloat32);
  EXPECT_THROW(rope(ctx, q, table, layout), ShapeError);
  Parameter word(ctx, {.name = "word", .shard = ShardSpec::whole({9, 4})});
  Parameter position(ctx, {.name = "position", .shard = ShardSpec::whole({4, 4})});
  const Tensor ids = ctx.empty("ids", {2, 1}, DType::kInt64, MemoryUse::kData);
  EXPECT_THROW(embedding(ctx, ids, word, 0, &position, layout), ShapeError);
}

}  // namespace
}  // namespace megatron::testing
