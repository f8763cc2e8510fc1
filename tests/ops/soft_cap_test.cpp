#include "megatron/ops/soft_cap.h"

#include <gtest/gtest.h>

#include "tests/testing/op_case.h"

namespace megatron::testing {
namespace {

TEST(SoftCap, PassesAllChecks) {
  check({.name = "soft_cap",
         .inputs = {{3, 2, 9}},
         .parameters = {},
         .forward = [](Context& ctx, OpOperands& o) { return std::vector{soft_cap(ctx, o.inputs[0], 0.7)}; },
         .magnitude = 2});
}

TEST(SoftCap, RefusesACapThatBoundsNothing) {
  TestDevice test;
  Context ctx = test.context();
  const Tensor x = ctx.empty("x", {2, 7}, DType::kFloat32);
  EXPECT_THROW(soft_cap(ctx, x, 0), ConfigError);
  EXPECT_THROW(soft_cap(ctx, x, -1), ConfigError);
}

}  // namespace
}  // namespace megatron::testing
