// The ops between the projections of multi-latent attention and its core.
#include "megatron/ops/latent_heads.h"

#include <gtest/gtest.h>

#include "megatron/ops/columns.h"
#include "tests/testing/op_case.h"

namespace megatron::testing {
namespace {

constexpr int64_t kRows = 5, kColumns = 2;

RopeTable table_of(const Context& ctx, int64_t rotated, DType dtype) {
  return RopeTable::make(ctx, {.head_size = rotated}, kernels::RopePairs::kInterleaved, kRows, dtype);
}

TEST(LatentHeads, QueriesPassAllChecks) {
  for (const LatentHeadSizes& sizes : {LatentHeadSizes{3, 4, 5}, LatentHeadSizes{16, 16, 8}})
    check({.name = "latent_query",
           .inputs = {{kRows, kColumns, 3 * sizes.query()}},
           .parameters = {},
           .forward = [=](Context& ctx, OpOperands& o) {
             const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = kRows, .b = kColumns});
             const Tensor& x = o.inputs[0];
             return std::vector{latent_query(ctx, x, sizes, table_of(ctx, sizes.rotated, x.dtype()), layout)};
           }});
}

TEST(LatentHeads, KeysAndValuesPassAllChecks) {
  for (const LatentHeadSizes& sizes : {LatentHeadSizes{3, 4, 5}, LatentHeadSizes{16, 16, 8}})
    check({.name = "latent_key_value",
           .inputs = {{kRows, kColumns, 3 * (sizes.without_position + sizes.value)}, {kRows, kColumns, sizes.rotated}},
           .parameters = {},
           .forward =
               [=](Context& ctx, OpOperands& o) {
                 const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = kRows, .b = kColumns});
                 const KeyValue out = latent_key_value(ctx, o.inputs[0], o.inputs[1], sizes,
                                                       table_of(ctx, sizes.rotated, o.inputs[0].dtype()), layout);
                 return std::vector{out.key, out.value};
               },
           .reduction_length = 3,
           .magnitude = 2});
}

TEST(Columns, SplitAndJoinedPassAllChecks) {
  check({.name = "split_columns",
         .inputs = {{kRows, kColumns, 9}},
         .parameters = {},
         .forward = [](Context& ctx, OpOperands& o) {
           const ColumnParts parts = split_columns(ctx, o.inputs[0], 7);
           return std::vector{parts.first, parts.second};
         }});
  for (const int64_t begin : {0, 2, 5})
    check({.name = "slice_columns",
           .inputs = {{kRows, kColumns, 9}},
           .parameters = {},
           .forward = [begin](Context& ctx, OpOperands& o) {
             return std::vector{slice_columns(ctx, o.inputs[0], begin, 4)};
           }});
  check({.name = "join_columns",
         .inputs = {{kRows, kColumns, 4}, {kRows, kColumns, 7}},
         .parameters = {},
         .forward = [](Context& ctx, OpOperands& o) {
           return std::vector{join_columns(ctx, o.inputs[0], o.inputs[1])};
         }});
}

TEST(Columns, ThatDoNotFitAreRefused) {
  TestDevice test(DeviceKind::kCpu, 1);
  Context ctx = test.context();
  const Tensor x = ctx.empty("x", {kRows, 14}, DType::kFloat32), y = ctx.empty("y", {kRows + 1, 14}, DType::kFloat32);
  EXPECT_THROW(split_columns(ctx, x, 14), ShapeError);
  EXPECT_THROW(split_columns(ctx, x, 0), ShapeError);
  EXPECT_THROW(slice_columns(ctx, x, 12, 3), ShapeError);
  EXPECT_THROW(slice_columns(ctx, x, 1, 0), ShapeError);
  EXPECT_THROW(join_columns(ctx, x, y), ShapeError);
}

TEST(LatentHeads, AllHeadsGetTheSharedPartOfTheKeysRotated) {
  TestDevice test(DeviceKind::kCpu, 1);
  Context ctx = test.context();
  constexpr LatentHeadSizes kSizes{.without_position = 1, .rotated = 2, .value = 1};
  const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = 2, .b = 1});
  Tensor x = ctx.empty("x", {2, 1, 4}, DType::kFloat64), shared = ctx.empty("shared", {2, 1, 2}, DType::kFloat64);
  for (int i = 0; i < 8; ++i) x.data<double>()[i] = 10 + i;
  for (int i = 0; i < 4; ++i) shared.data<double>()[i] = i + 1;
  const KeyValue out = latent_key_value(ctx, x, shared, kSizes, table_of(ctx, 2, DType::kFloat64), layout);
  const double a = 3 * std::cos(1) - 4 * std::sin(1), b = 4 * std::cos(1) + 3 * std::sin(1);  // at position 1
  EXPECT_EQ(values_of(out.key), (std::vector<double>{10, 1, 2, 12, 1, 2, 14, a, b, 16, a, b}));
  EXPECT_EQ(values_of(out.value), (std::vector<double>{11, 13, 15, 17}));
}

TEST(LatentHeads, ShapesThatDoNotFitAreRefused) {
  TestDevice test(DeviceKind::kCpu, 1);
  Context ctx = test.context();
  const SequenceLayout layout = SequenceLayout::uniform(ctx, {.s = kRows, .b = kColumns});
  const RopeTable table = table_of(ctx, 4, DType::kFloat32);
  const Tensor x = ctx.empty("x", {kRows, kColumns, 14}, DType::kFloat32);
  const Tensor shared = ctx.empty("shared", {kRows, kColumns, 4}, DType::kFloat32);
  EXPECT_THROW(latent_query(ctx, x, {.without_position = 4, .rotated = 4, .value = 3}, table, layout), ShapeError);
  EXPECT_THROW(latent_query(ctx, x, {.without_position = 5, .rotated = 2, .value = 3}, table, layout), ShapeError);
  EXPECT_THROW(latent_key_value(ctx, x, x, {.without_position = 4, .rotated = 4, .value = 3}, table, layout),
               ShapeError);
  EXPECT_THROW(latent_key_value(ctx, x, shared, {.without_position = 4, .rotated = 4, .value = 4}, table, layout),
               ShapeError);
}

}  // namespace
}  // namespace megatron::testing
