#include "megatron/ops/linear.h"

#include <gtest/gtest.h>

#include "tests/testing/op_case.h"

namespace megatron::testing {
namespace {

TEST(Linear, PassesAllChecksWithAndWithoutBias) {
  for (const bool has_bias : {false, true}) {
    OpCase op{.name = has_bias ? "linear with bias" : "linear",
              .inputs = {{3, 2, 7}},
              .parameters = {{.shape = {5, 7}}},
              .forward =
                  [=](Context& ctx, OpOperands& o) {
                    return std::vector{
                        linear(ctx, o.inputs[0], *o.parameters[0], has_bias ? o.parameters[1].get() : nullptr)};
                  },
              .reduction_length = 7};
    if (has_bias) op.parameters.push_back({.shape = {5}});
    check(op);
  }
}

TEST(Linear, LeavesAFrozenWeightWithoutGradientAndGivesDx) {
  check({.name = "linear, frozen weight",
         .inputs = {{4, 1, 3}},
         .parameters = {{.shape = {9, 3}, .is_trainable = false}},
         .forward = [](Context& ctx,
                       OpOperands& o) { return std::vector{linear(ctx, o.inputs[0], *o.parameters[0], nullptr)}; },
         .reduction_length = 9});
}

TEST(Linear, AccumulatesOverTwoUsesOfOneWeight) {
  check({.name = "linear, weight used twice",
         .inputs = {{4, 1, 6}},
         .parameters = {{.shape = {6, 6}}},
         .forward =
             [](Context& ctx, OpOperands& o) {
               const Tensor y = linear(ctx, o.inputs[0], *o.parameters[0], nullptr);
               return std::vector{linear(ctx, y, *o.parameters[0], nullptr)};
             },
         .reduction_length = 36,
         .magnitude = 4});
}

TEST(Linear, RejectsAWrongNumberOfColumns) {
  TestDevice test;
  Context ctx = test.context();
  Parameter w(ctx, {.name = "w", .shard = ShardSpec::whole({5, 7})});
  EXPECT_THROW(linear(ctx, ctx.empty("x", {2, 1, 6}, DType::kFloat32), w, nullptr), ShapeError);
}

}  // namespace
}  // namespace megatron::testing
