#include <gtest/gtest.h>

#include "megatron/ops/bias_dropout_add.h"
#include "megatron/ops/layer_norm.h"
#include "megatron/ops/rms_norm.h"
#include "tests/testing/op_case.h"

namespace megatron::testing {
namespace {

TEST(RmsNorm, PassesAllChecks) {
  for (const bool zero_centered : {false, true})
    check({.name = "rms_norm",
           .inputs = {{3, 2, 13}},
           .parameters = {{.shape = {13}, .offset = zero_centered ? 0.5 : 1.5}},
           .forward =
               [=](Context& ctx, OpOperands& o) {
                 return std::vector{rms_norm(ctx, o.inputs[0], o.parameters[0].get(),
                                             {.eps = 1e-5, .zero_centered_gamma = zero_centered})};
               },
           .reduction_length = 13,
           .magnitude = 2});
}

TEST(RmsNorm, WithoutWeightIsTheL2Norm) {
  check({.name = "l2 norm",
         .inputs = {{2, 1, 3, 5}},
         .parameters = {},
         .forward = [](Context& ctx, OpOperands& o) { return std::vector{rms_norm(ctx, o.inputs[0], nullptr, {})}; },
         .reduction_length = 5,
         .magnitude = 2});
}

TEST(RmsNorm, LeavesAFrozenWeightWithoutGradient) {
  check({.name = "rms_norm, frozen",
         .inputs = {{4, 1, 6}},
         .parameters = {{.shape = {6}, .is_trainable = false, .offset = 1.5}},
         .forward = [](Context& ctx,
                       OpOperands& o) { return std::vector{rms_norm(ctx, o.inputs[0], o.parameters[0].get(), {})}; },
         .reduction_length = 6,
         .magnitude = 2});
}

TEST(LayerNorm, PassesAllChecks) {
  for (const bool zero_centered : {false, true})
    check({.name = "layer_norm",
           .inputs = {{5, 1, 11}},
           .parameters = {{.shape = {11}, .offset = zero_centered ? 0.5 : 1.5}, {.shape = {11}}},
           .forward =
               [=](Context& ctx, OpOperands& o) {
                 return std::vector{layer_norm(ctx, o.inputs[0], *o.parameters[0], *o.parameters[1],
                                               {.eps = 1e-5, .zero_centered_gamma = zero_centered})};
               },
           .reduction_length = 11,
           .magnitude = 4});
}

TEST(LayerNorm, AddsUpASharedGammaAndOverwritesTheGradientsOfItsOwnBetas) {
  check({.name = "layer_norm, one gamma and two betas",
         .inputs = {{5, 1, 7}},
         .parameters = {{.shape = {7}, .offset = 1.5}, {.shape = {7}}, {.shape = {7}}},
         .forward =
             [](Context& ctx, OpOperands& o) {
               const Tensor y = layer_norm(ctx, o.inputs[0], *o.parameters[0], *o.parameters[1], {});
               return std::vector{layer_norm(ctx, y, *o.parameters[0], *o.parameters[2], {})};
             },
         .reduction_length = 35,
         .magnitude = 4});
}

/// A residual block: the input reaches the output past the norm too. A third use of it adds up as well.
TEST(Norms, AddTheGradientOfTheResidual) {
  for (const bool is_layer : {false, true})
    check({.name = is_layer ? "layer_norm with a residual" : "rms_norm with a residual",
           .inputs = {{3, 2, 13}},
           .parameters = {{.shape = {13}, .offset = 1.5}, {.shape = {13}}},
           .forward =
               [=](Context& ctx, OpOperands& o) {
                 const Tensor& x = o.inputs[0];
                 const Tensor normed = is_layer ? layer_norm(ctx, x, *o.parameters[0], *o.parameters[1], {})
                                                : rms_norm(ctx, x, o.parameters[0].get(), {});
                 const Tensor sum = bias_dropout_add(ctx, normed, o.parameters[1].get(), x, {});
                 return std::vector{bias_dropout_add(ctx, sum, nullptr, x, {})};
               },
           .reduction_length = 13,
           .magnitude = 4});
}

TEST(Norms, RejectAWeightOfAnotherSize) {
  TestDevice test;
  Context ctx = test.context();
  Parameter weight(ctx, {.name = "w", .shard = ShardSpec::whole({7})});
  const Tensor x = ctx.empty("x", {2, 1, 6}, DType::kFloat32);
  EXPECT_THROW(rms_norm(ctx, x, &weight, {}), ShapeError);
  EXPECT_THROW(layer_norm(ctx, x, weight, weight, {}), ShapeError);
}

}  // namespace
}  // namespace megatron::testing
