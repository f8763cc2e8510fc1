#include "megatron/ops/activation.h"

#include <gtest/gtest.h>

#include "tests/testing/op_case.h"

namespace megatron::testing {
namespace {
using kernels::Activation;

TEST(Activation, PassesAllChecksForEachFunctionWithAndWithoutBias) {
  for (const Activation kind :
       {Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu, Activation::kSilu, Activation::kSquaredRelu})
    for (const bool has_bias : {false, true}) {
      OpCase op{
          .name = fmt::format("activation {}", static_cast<int>(kind)),
          .inputs = {{3, 1, 9}},
          .parameters = {},
          .forward =
              [=](Context& ctx, OpOperands& o) {
                return std::vector{activation(ctx, o.inputs[0], has_bias ? o.parameters[0].get() : nullptr, kind)};
              },
          .reduction_length = 3,
          .magnitude = 4};
      if (has_bias) op.parameters.push_back({.shape = {9}});
      check(op);
    }
}

TEST(GatedActivation, PassesAllChecksWithAndWithoutBias) {
  for (const bool has_bias : {false, true}) {
    OpCase op{.name = "gated activation",
              .inputs = {{3, 2, 14}},
              .parameters = {},
              .forward =
                  [=](Context& ctx, OpOperands& o) {
                    return std::vector{gated_activation(ctx, o.inputs[0], has_bias ? o.parameters[0].get() : nullptr,
                                                        Activation::kSilu, {})};
                  },
              .reduction_length = 6,
              .magnitude = 4};
    if (has_bias) op.parameters.push_back({.shape = {14}});
    check(op);
  }
}

TEST(GatedActivation, ClampsAndShiftsLikeGptOss) {
  check({.name = "clamped quick-geglu",
         .inputs = {{3, 1, 10}},
         .parameters = {},
         .forward =
             [](Context& ctx, OpOperands& o) {
               return std::vector{gated_activation(ctx, o.inputs[0], nullptr, Activation::kQuickGelu,
                                                   {.clamp = 0.7, .linear_offset = 1})};
             },
         .magnitude = 4,
         .dtypes = {}});  // rounding moves values over the clamp, where the gradient jumps
}

TEST(SigmoidGate, PassesAllChecks) {
  check(
      {.name = "sigmoid gate",
       .inputs = {{3, 2, 15}, {3, 2, 3, 5}},
       .parameters = {},
       .forward = [](Context& ctx, OpOperands& o) { return std::vector{sigmoid_gate(ctx, o.inputs[0], o.inputs[1])}; },
       .magnitude = 4});
}

TEST(SigmoidGate, RejectsAGateOfAnotherSize) {
  TestDevice test;
  Context ctx = test.context();
  const Tensor x = ctx.empty("x", {3, 2, 15}, DType::kFloat32), gate = ctx.empty("gate", {3, 2, 3}, DType::kFloat32);
  EXPECT_THROW(sigmoid_gate(ctx, x, gate), ShapeError);
}

TEST(GatedActivation, RejectsAnOddWidth) {
  TestDevice test;
  Context ctx = test.context();
  EXPECT_THROW(gated_activation(ctx, ctx.empty("x", {2, 7}, DType::kFloat32), nullptr, Activation::kSilu, {}),
               ShapeError);
}

}  // namespace
}  // namespace megatron::testing
