#include "megatron/core/tensor.h"

#include <gtest/gtest.h>

#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

TEST(Tensor, SlicesAndTransposesShareTheStorage) {
  TestDevice test;
  const Context ctx = test.context();
  Tensor x = ctx.empty("x", {3, 4}, DType::kInt32);
  for (int32_t i = 0; i < 12; ++i) x.data<int32_t>()[i] = i;
  const Tensor part = x.slice(1, 1, 2).transpose(0, 1);
  EXPECT_EQ(part.shape(), (Shape{2, 3}));
  EXPECT_EQ(part.strides(), (Shape{1, 4}));
  EXPECT_EQ(*part.data<int32_t>(), 1);
  EXPECT_FALSE(part.is_contiguous());
  EXPECT_FALSE(x.owns_storage_alone());
}

TEST(Tensor, KeepsItsCountAlive) {
  TestDevice test;
  const Context ctx = test.context();
  Tensor x;
  {
    const Storage count(test.device.arena, "count", 4, MemoryUse::kData);
    *reinterpret_cast<int32_t*>(count.data()) = 2;
    x = ctx.empty_bounded("x", {5, 3}, DType::kFloat32, count);
  }
  EXPECT_EQ(x.view().rows(), 2);
  EXPECT_EQ(ctx.empty_like("y", x).view().rows(), 2);
}

TEST(Tensor, RejectsViewsThatLoseTheGradientOrTheCount) {
  TestDevice test;
  const Context ctx = test.context();
  const Storage count(test.device.arena, "count", 4, MemoryUse::kData);
  const Tensor bounded = ctx.empty_bounded("x", {6, 4}, DType::kFloat32, count);
  EXPECT_THROW(bounded.slice(0, 2, 2), ShapeError);
  EXPECT_NO_THROW(bounded.slice(1, 2, 2));
  EXPECT_THROW(bounded.transpose(0, 1), InternalError);
  EXPECT_THROW(bounded.reshape({24}), ShapeError);
  EXPECT_NO_THROW(bounded.reshape({6, 2, 2}));
  Tensor recorded = ctx.empty("x", {6, 4}, DType::kFloat32);
  recorded.slot = {1, 0};
  EXPECT_THROW(recorded.slice(1, 0, 2), InternalError);
  EXPECT_NO_THROW(recorded.detach().slice(1, 0, 2));
}

TEST(Tensor, RejectsRowsAndTypesThatItDoesNotHave) {
  TestDevice test;
  const Tensor x = test.context().empty("x", {6, 4}, DType::kFloat32);
  EXPECT_THROW(x.slice(0, 4, 3), ShapeError);
  EXPECT_THROW(x.data<double>(), DtypeError);
  EXPECT_THROW(x.reshape({5, 5}), ShapeError);
  EXPECT_THROW(x.transpose(0, 1).reshape({24}), ShapeError);
}

}  // namespace
}  // namespace megatron::testing
