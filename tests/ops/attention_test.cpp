#include "megatron/ops/attention.h"

#include <gtest/gtest.h>

#include "megatron/ops/embedding.h"
#include "megatron/ops/rope.h"
#include "megatron/ops/split_qkv.h"
#include "tests/testing/op_case.h"

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

TEST(Attention, OfPackedSequencesIsThatOfSeparateOnes) {
  OpCase op = attention_case("packed", {.scale = 0.4}, 2);
  op.forward = [](Context& ctx, OpOperands& o) {
    const SequenceLayout layout = SequenceLayout::cut_at(ctx, {.s = s, .b = b}, {{3}, {1, 6}}, {});
    return std::vector{attention(ctx, o.inputs[0], o.inputs[1], o.inputs[2], layout, {.scale = 0.4}, nullptr)};
  };
  check(op);
}

TEST(Attention, RefusesHeadsThatDoNotFit) {
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
           QueryKeyValue out = split_qkv(ctx, o.inputs[0], 2, 6);
           return std::vector{out.query, out.key, out.value};
         }});
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

TEST(Layouts, BeyondTheKeysOrThePositionsOfATableAreRefused) {
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
