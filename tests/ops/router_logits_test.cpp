#include "megatron/ops/router_logits.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/op_case.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

TEST(RouterLogits, PassAllChecksInTheDtypeOfTheInputAndInAHigherOne) {
  for (const bool has_bias : {false, true}) {
    OpCase op{.name = "router_logits",
              .inputs = {{3, 2, 7}},
              .parameters = {{.shape = {4, 7}}},
              .forward =
                  [=](Context& ctx, OpOperands& o) {
                    const Tensor& x = o.inputs[0];
                    const DType dtype = x.dtype() == DType::kFloat64 ? x.dtype() : DType::kFloat32;
                    Parameter* bias = has_bias ? o.parameters[1].get() : nullptr;
                    return std::vector{router_logits(ctx, x, *o.parameters[0], bias, dtype)};
                  },
              .reduction_length = 7,
              .magnitude = 2};
    if (has_bias) op.parameters.push_back({.shape = {4}});
    check(op);
  }
}

TEST(RouterLogits, PassAllChecksInFloat64) {
  check({.name = "router_logits in float64",
         .inputs = {{6, 7}},
         .parameters = {{.shape = {4, 7}}},
         .forward =
             [](Context& ctx, OpOperands& o) {
               return std::vector{router_logits(ctx, o.inputs[0], *o.parameters[0], nullptr, DType::kFloat64)};
             },
         .reduction_length = 7,
         .magnitude = 2,
         .dtypes = {DType::kFloat32},
         .is_on_cuda = false});
}

/// Operands in bf16 would round gradients of logits to 8 bits.
TEST(RouterLogits, OfBf16OperandsHaveGradientsOfFloat32) {
  constexpr int64_t kTokens = 50, kExperts = 5, kHidden = 9;
  TestDevice test;
  const Context plain = test.context();
  Parameter weight(plain, {.name = "w", .shard = ShardSpec::whole({kExperts, kHidden}), .dtype = DType::kBFloat16});
  weight.set_main_grad(plain.empty("dw", {kExperts, kHidden}, DType::kFloat32, MemoryUse::kGradients));
  Parameter bias(plain, {.name = "b", .shard = ShardSpec::whole({kExperts}), .dtype = DType::kBFloat16});
  bias.set_main_grad(plain.empty("db", {kExperts}, DType::kFloat32, MemoryUse::kGradients));
  Tensor x = plain.empty("x", {kTokens, kHidden}, DType::kBFloat16);
  Tensor dy = plain.empty("dy", {kTokens, kExperts}, DType::kFloat32);
  fill_uniform(plain, x, "x");
  fill_uniform(plain, dy, "dy");
  std::vector<double> dw(static_cast<size_t>(kExperts * kHidden)), db(static_cast<size_t>(kExperts));
  for (Parameter* parameter : {&weight, &bias}) {
    fill_uniform(plain, parameter->value(), parameter->name());
    parameter->begin_step();
    parameter->open_segment();
  }
  constexpr int kSteps = 2;  // the second adds to the gradient of the first
  for (int step = 0; step < kSteps; ++step) {
    Tape tape(test.device);
    Context ctx = plain;
    ctx.tape = &tape;
    ctx.mode = GradMode::kRecord;
    tape.watch(x);
    const Tensor logits = router_logits(ctx, x, weight, &bias, DType::kFloat32);
    ASSERT_EQ(logits.dtype(), DType::kFloat32);
    tape.seed(ctx, logits.slot, dy.detach());
    tape.backward(ctx, Phase::kBW, 0);
  }
  const std::vector<double> rows = values_of(x), gradient = values_of(dy);
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t e = 0; e < kExperts; ++e) {
      const double d = kSteps * gradient[static_cast<size_t>(t * kExperts + e)];
      db[static_cast<size_t>(e)] += d;
      for (int64_t h = 0; h < kHidden; ++h)
        dw[static_cast<size_t>(e * kHidden + h)] += d * rows[static_cast<size_t>(t * kHidden + h)];
    }
  const double bound = tolerance(DType::kFloat32, 3 * kSteps * kTokens, 2);
  EXPECT_LT(bound, epsilon(DType::kBFloat16) / 16) << "the bound would not tell bf16 from fp32";
  const std::vector<double> actual_dw = values_of(weight.main_grad()), actual_db = values_of(bias.main_grad());
  for (size_t i = 0; i < dw.size(); ++i) EXPECT_NEAR(actual_dw[i], dw[i], bound);
  for (size_t i = 0; i < db.size(); ++i) EXPECT_NEAR(actual_db[i], db[i], bound);
}

}  // namespace
}  // namespace megatron::testing
