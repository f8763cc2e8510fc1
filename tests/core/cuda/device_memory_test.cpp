// A cuda device's arenas and the host's ways into them.
#include <gtest/gtest.h>

#include <numeric>

#include "megatron/autograd/saved_tensor.h"
#include "megatron/core/copy.h"
#include "megatron/core/copy_queue.h"
#include "tests/testing/cuda_test_device.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

class CudaMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
    test.emplace(DeviceKind::kCuda);
  }
  Tensor numbers(int64_t n, int32_t first) {
    Tensor x = test->context().empty("x", {n}, DType::kInt32);
    write_values<int32_t>(test->device, values(n, first), x);
    return x;
  }
  static std::vector<int32_t> values(int64_t n, int32_t first) {
    std::vector<int32_t> result(static_cast<size_t>(n));
    std::iota(result.begin(), result.end(), first);
    return result;
  }
  std::optional<TestDevice> test;
};

TEST_F(CudaMemoryTest, WhatIsWrittenIsReadAlsoWhereUploadsOvertakeTheGpu) {
  const int64_t n = (70 << 20) / 4 + 13;  // more than twice what is uploaded without a wait
  const Tensor x = numbers(n, 5);
  Tensor y = test->context().empty("y", {n}, DType::kInt32);
  copy_on_device(test->device, x.data<int32_t>(), y.data<int32_t>(), x.bytes());
  EXPECT_EQ(read_values<int32_t>(test->device, y), values(n, 5));
  fill_zero(test->device, y.data<int32_t>() + 1, 4);
  EXPECT_EQ(read_value(test->device, y.data<int32_t>()), 5);
  EXPECT_EQ(read_value(test->device, y.data<int32_t>() + 1), 0);
  EXPECT_EQ(read_value(test->device, y.data<int32_t>() + 2), 7);
}

/// A read in between says that all before it is done.
TEST_F(CudaMemoryTest, WhatIsWrittenIsReadWhereTheHostHasWaitedInBetween) {
  const int64_t n = (20 << 20) / 4 + 1;
  for (int32_t round = 0; round < 4; ++round) {
    const Tensor x = numbers(n, round), y = numbers(n, -round);
    EXPECT_EQ(read_values<int32_t>(test->device, x), values(n, round));
    EXPECT_EQ(read_values<int32_t>(test->device, y), values(n, -round));
  }
}

TEST_F(CudaMemoryTest, AHostBufferMayBeReusedAtOnce) {
  Tensor x = test->context().empty("x", {1000}, DType::kInt32);
  for (int32_t i = 0; i < 1000; ++i) {
    int32_t value = 3 * i;
    write_value(test->device, value, x.data<int32_t>() + i);
    value = -1;
  }
  const std::vector<int32_t> all = read_values<int32_t>(test->device, x);
  for (int32_t i = 0; i < 1000; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], 3 * i);
}

TEST_F(CudaMemoryTest, GrowthLeavesEarlierBlocksAsTheyAre) {
  std::vector<Tensor> kept;
  for (int32_t i = 0; i < 6; ++i) kept.push_back(numbers(int64_t{3} << 20, i));  // 12 MiB each
  for (int32_t i = 0; i < 6; ++i)
    EXPECT_EQ(read_values<int32_t>(test->device, kept[static_cast<size_t>(i)]), values(int64_t{3} << 20, i));
}

TEST_F(CudaMemoryTest, NewBlocksArePoisoned) {
  const Tensor x = test->context().empty("x", {100}, DType::kInt32);
  EXPECT_EQ(read_values<int32_t>(test->device, x), std::vector<int32_t>(100, -1));
}

TEST_F(CudaMemoryTest, MoreThanTheGpuHasIsAnErrorWithTheTableAndChangesNothing) {
  Device large(DeviceKind::kCuda, {.capacity_bytes = int64_t{1} << 42});
  try {
    const Storage block(large.arena, "too large", int64_t{1} << 41, MemoryUse::kActivations);
    ADD_FAILURE() << "two terabytes were given";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("memory (MiB)"), std::string::npos) << error.what();
  }
  EXPECT_EQ(large.arena.total().live, 0);
  const Storage small(large.arena, "small", 1000, MemoryUse::kActivations);
  fill_zero(large, small.data(), 1000);
  EXPECT_EQ(read_value(large, small.data() + 999), std::byte{0});
}

/// 3 blocks of host memory, each larger than what is locked at a time, and copies that cross the pieces.
TEST_F(CudaMemoryTest, CopiesBesideKernelsCrossPiecesOfLockedMemory) {
  constexpr int64_t kNumbers = int64_t{11} << 20;  // 44 MiB
  const Context ctx = test->context();
  std::vector<Tensor> kept;
  CopyQueue &down = test->device.copies_to_host(), &up = test->device.copies_to_device();
  for (int32_t i = 0; i < 3; ++i) {
    Tensor x = numbers(kNumbers, i), back = ctx.empty("back", {kNumbers}, DType::kInt32);
    Tensor host = ctx.empty_on_host("host", {kNumbers}, DType::kInt32, MemoryUse::kOptimizer);
    kept.push_back(host);
    down.wait_for_kernels();
    down.copy(x.data<int32_t>(), host.data<int32_t>(), x.bytes());
    down.wait(down.mark());
    EXPECT_EQ(std::vector<int32_t>(host.data<int32_t>(), host.data<int32_t>() + kNumbers), values(kNumbers, i));
    host.data<int32_t>()[kNumbers - 1] = -7;
    up.copy(host.data<int32_t>(), back.data<int32_t>(), x.bytes());
    up.hold_kernels(up.mark());
    EXPECT_EQ(read_value(test->device, back.data<int32_t>() + kNumbers - 1), -7);
    EXPECT_EQ(read_value(test->device, back.data<int32_t>() + kNumbers / 2),
              values(kNumbers, i)[static_cast<size_t>(kNumbers / 2)]);
    EXPECT_EQ(read_values<int32_t>(test->device, host).back(), -7) << "the host's memory is read by the same functions";
  }
}

TEST_F(CudaMemoryTest, AnOffloadedTensorComesBack) {
  const Context ctx = test->context();
  Tensor x = ctx.empty("x", {1000, 37}, DType::kFloat32);
  fill_uniform(ctx, x, "x");
  const SavedTensor saved(ctx, x, SavePolicy::kOffload);
  EXPECT_GT(test->device.pinned.total().live, 0);
  const Tensor back = saved.get(ctx);
  EXPECT_NE(back.data<float>(), x.data<float>());
  EXPECT_EQ(values_of(test->device, back), values_of(test->device, x));
}

}  // namespace
}  // namespace megatron::testing
