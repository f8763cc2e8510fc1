// Ops that turn tokens into numbers and losses into a sum, and those that move rows.
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "megatron/ops/activation.h"
#include "megatron/ops/add.h"
#include "megatron/ops/bias_dropout_add.h"
#include "megatron/ops/embedding.h"
#include "megatron/ops/linear.h"
#include "megatron/ops/masked_sum.h"
#include "megatron/ops/move_rows.h"
#include "tests/testing/op_case.h"

namespace megatron::testing {
namespace {

TEST(Embedding, PassesAllChecksWithRepeatedTokensAndPositions) {
  for (const bool has_positions : {false, true}) {
    OpCase op{
        .name = "embedding",
        .inputs = {},
        .parameters = {{.shape = {5, 3}}},
        .forward =
            [=](Context& ctx, OpOperands& o) {
              const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = 4, .b = 3});
              return std::vector{embedding(ctx, uniform_integers(ctx, {3, 4}, 5).transpose(0, 1), *o.parameters[0], 0,
                                           has_positions ? o.parameters[1].get() : nullptr, layout)};
            },
        .reduction_length = 12};
    if (has_positions) op.parameters.push_back({.shape = {6, 3}});
    check(op);
  }
}

TEST(MaskedSum, PassesAllChecks) {
  check({.name = "masked_sum",
         .inputs = {{5, 3}},
         .parameters = {},
         .forward =
             [](Context& ctx, OpOperands& o) {
               Tensor mask = ctx.empty("mask", {3, 5}, DType::kFloat32, MemoryUse::kData);
               std::vector<float> values(15, 1);
               for (size_t i = 1; i < 15; i += 4) values[i] = 0;
               write_values<float>(ctx.device, values, mask);
               Tensor weight = ctx.empty("weight", {1}, DType::kFloat64, MemoryUse::kData);
               write_values<double>(ctx.device, std::array{0.25}, weight);
               return std::vector{masked_sum(ctx, o.inputs[0], mask.transpose(0, 1), weight),
                                  masked_sum(ctx, o.inputs[0], mask.transpose(0, 1))};
             },
         .reduction_length = 30});
}

TEST(BiasDropoutAdd, PassesAllChecksWithAndWithoutBias) {
  for (const double rate : {0.0, 0.4})
    for (const bool has_bias : {false, true}) {
      OpCase op{.name = "bias_dropout_add",
                .inputs = {{4, 2, 9}, {4, 2, 9}},
                .parameters = {},
                .forward =
                    [=](Context& ctx, OpOperands& o) {
                      const RowMap rows{.sequence_length = 4, .b = 2};
                      return std::vector{bias_dropout_add(ctx, o.inputs[0], has_bias ? o.parameters[0].get() : nullptr,
                                                          o.inputs[1], {.rate = rate, .path = "x", .rows = rows})};
                    },
                .reduction_length = 8,
                .magnitude = 2};
      if (has_bias) op.parameters.push_back({.shape = {9}});
      check(op);
    }
}

TEST(Dropout, IsOffInEvaluation) {
  TestDevice test;
  Context ctx = test.context();
  Tensor x = ctx.empty("x", {2, 1, 8}, DType::kFloat32);
  fill_uniform(ctx, x, "x");
  EXPECT_EQ(values_of(dropout(ctx, x, {.rate = 0.5, .path = "x", .rows = {}})), values_of(x));
}

TEST(Dropout, KeepsTheListOfItsRowsUntilBackward) {
  TestDevice test;
  Context ctx = test.context();
  Tape tape(test.device);
  ctx.tape = &tape;
  ctx.mode = GradMode::kRecord;
  Tensor x = ctx.empty("x", {4, 32}, DType::kFloat64), ones = ctx.empty("dy", {4, 32}, DType::kFloat64);
  for (Tensor* t : {&x, &ones}) launch(ctx, [&](auto&) { std::fill_n(t->data<double>(), 128, 1.0); });
  tape.watch(x);
  Tensor y;
  {
    Tensor rows = ctx.empty("rows", {4}, DType::kInt32, MemoryUse::kData);
    for (int32_t i = 0; i < 4; ++i) rows.data<int32_t>()[i] = 5 * i;
    y = dropout(ctx, x, {.rate = 0.5, .path = "x", .rows = {.sequence_length = 20}, .row_list = rows});
  }
  const Tensor other = ctx.empty("other", {4}, DType::kInt32, MemoryUse::kData);  // would take the place of rows
  tape.seed(ctx, y.slot, ones);
  tape.backward(ctx, Phase::kBW, 0);
  EXPECT_EQ(values_of(tape.take_gradient(x.slot)), values_of(y));
}

IndexList every_second(const Context& ctx) {
  IndexList index{ctx.empty("rows", {4}, DType::kInt32, MemoryUse::kData),
                  Storage(ctx.device.arena, "count", 4, MemoryUse::kData)};
  write_values<int32_t>(ctx.device, std::array{0, 2, 4, 6}, index.rows);
  write_value(ctx.device, int32_t{3}, reinterpret_cast<int32_t*>(index.count.data()));
  return index;
}

TEST(MoveRows, GatherThenScatterPassesAllChecksWithABoundedExtent) {
  check(
      {.name = "gather and scatter", .inputs = {{7, 5}}, .parameters = {}, .forward = [](Context& ctx, OpOperands& o) {
         const IndexList index = every_second(ctx);
         return std::vector{scatter_rows(ctx, gather_rows(ctx, o.inputs[0], index), index, 7)};
       }});
}

TEST(MoveRows, ALinearOverABoundedExtentPassesAllChecks) {
  check({.name = "linear over routed rows",
         .inputs = {{7, 5}},
         .parameters = {{.shape = {6, 5}}, {.shape = {5, 6}}},
         .forward =
             [](Context& ctx, OpOperands& o) {
               const IndexList index = every_second(ctx);
               const Tensor up = linear(ctx, gather_rows(ctx, o.inputs[0], index), *o.parameters[0], nullptr);
               const Tensor active = activation(ctx, up, nullptr, kernels::Activation::kGelu);
               const Tensor dropped =
                   dropout(ctx, active,
                           {.rate = 0.3, .path = "expert", .rows = {.sequence_length = 7}, .row_list = index.rows});
               return std::vector{scatter_rows(ctx, linear(ctx, dropped, *o.parameters[1], nullptr), index, 7)};
             },
         .reduction_length = 30,
         .magnitude = 4});
}

TEST(MoveRows, RaisesTheOverflowFlagAboveTheCapacity) {
  TestDevice test;
  Context ctx = test.context();
  const IndexList index = every_second(ctx);
  Tensor x = ctx.empty("x", {9, 2}, DType::kFloat32);
  fill_uniform(ctx, x, "x");
  gather_rows(ctx, x, index);
  EXPECT_EQ(test.step.overflow, 0);
  *reinterpret_cast<int32_t*>(index.count.data()) = 5;
  gather_rows(ctx, x, index);
  EXPECT_EQ(test.step.overflow, 1);
}

TEST(BoundedExtents, MustBeTheSameForTwoOperands) {
  TestDevice test;
  Context ctx = test.context();
  const auto bounded = [&](const Storage& count) { return ctx.empty_bounded("x", {4, 3}, DType::kFloat32, count); };
  const Storage count = every_second(ctx).count, other_count = every_second(ctx).count;
  const Tensor x = bounded(count), same = bounded(count), other = bounded(other_count), whole = bounded({});
  const auto bda = [&](const Tensor& a, const Tensor& b) { return bias_dropout_add(ctx, a, nullptr, b, {}); };
  EXPECT_TRUE(add(ctx, x, same).is_bounded());
  EXPECT_TRUE(bda(x, same).is_bounded());
  for (const auto& [a, b] : {std::pair{x, whole}, {whole, x}, {x, other}}) {
    EXPECT_THROW(add(ctx, a, b), ShapeError);
    EXPECT_THROW(bda(a, b), ShapeError);
  }
}

TEST(Scale, PassesAllChecksAndIsTheTensorItselfByOne) {
  check({.name = "scale", .inputs = {{3, 4}}, .parameters = {}, .forward = [](Context& ctx, OpOperands& o) {
           return std::vector{scale(ctx, o.inputs[0], 0.3)};
         }});
  TestDevice test;
  Context ctx = test.context();
  const Tensor x = ctx.empty("x", {2, 7}, DType::kFloat32);
  EXPECT_EQ(scale(ctx, x, 1).storage(), x.storage());
}

TEST(Add, PassesAllChecksAndSoDoesCast) {
  check({.name = "add", .inputs = {{3, 4}, {3, 4}}, .parameters = {}, .forward = [](Context& ctx, OpOperands& o) {
           return std::vector{add(ctx, o.inputs[0], o.inputs[1])};
         }});
  check({.name = "one tensor added to itself",
         .inputs = {{3, 4}},
         .parameters = {},
         .forward = [](Context& ctx, OpOperands& o) { return std::vector{add(ctx, o.inputs[0], o.inputs[0])}; }});
  check({.name = "cast to fp64",
         .inputs = {{3, 4}},
         .parameters = {},
         .forward = [](Context& ctx, OpOperands& o) { return std::vector{cast(ctx, o.inputs[0], DType::kFloat64)}; },
         .is_on_cuda = false});
}

}  // namespace
}  // namespace megatron::testing
