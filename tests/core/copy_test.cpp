#include "megatron/core/copy.h"

#include <gtest/gtest.h>

#include <numeric>

#include "megatron/core/context.h"

namespace megatron {
namespace {

constexpr Device::Options kSmall = {.capacity_bytes = 1 << 20, .poison = true};
constexpr Device::Options kGuarded = {.capacity_bytes = 1 << 20, .poison = true, .guard = true};

struct DeviceUnderTest {
  explicit DeviceUnderTest(DeviceKind kind, const Device::Options& options) : device(kind, options) {}
  Tensor tensor(int64_t n) { return ctx.empty("x", {n}, DType::kInt32); }
  Device device;
  StepState step;
  Context ctx{.device = device, .step = step, .key = RandomKey::from_seed(1)};
};

std::vector<int32_t> numbers(int64_t n) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(Copy, WhatIsWrittenIsRead) {
  for (const Device::Options& options : {kSmall, kGuarded}) {
    DeviceUnderTest test(DeviceKind::kCpu, options);
    Tensor x = test.tensor(37), y = test.tensor(37);
    write_values<int32_t>(test.device, numbers(37), x);
    copy_on_device(test.device, x.data<int32_t>(), y.data<int32_t>(), x.bytes());
    EXPECT_EQ(read_values<int32_t>(test.device, y), numbers(37));
    write_value(test.device, int32_t{-5}, y.data<int32_t>() + 36);
    EXPECT_EQ(read_value(test.device, y.data<int32_t>() + 36), -5);
    fill_zero(test.device, y.data<int32_t>(), 36 * 4);
    EXPECT_EQ(read_value(test.device, y.data<int32_t>() + 35), 0);
    EXPECT_EQ(read_value(test.device, y.data<int32_t>() + 36), -5);
  }
}

TEST(Copy, MetaReadsZeros) {
  DeviceUnderTest test(DeviceKind::kMeta, kSmall);
  Tensor x = test.tensor(5);
  write_values<int32_t>(test.device, numbers(5), x);
  fill_zero(test.device, x.data<int32_t>(), x.bytes());
  EXPECT_EQ(read_values<int32_t>(test.device, x), std::vector<int32_t>(5, 0));
}

TEST(Copy, RejectsOtherSizesAndGaps) {
  DeviceUnderTest test(DeviceKind::kCpu, kSmall);
  Tensor x = test.ctx.empty("x", {4, 5}, DType::kInt32);
  EXPECT_THROW(write_values<int32_t>(test.device, numbers(19), x), ShapeError);
  EXPECT_THROW(read_values<int32_t>(test.device, x.slice(1, 0, 3)), ShapeError);
  EXPECT_THROW(read_values<float>(test.device, x), DtypeError);
}

TEST(GuardedMemory, AStrayAccessOfTheHostDies) {
  DeviceUnderTest test(DeviceKind::kCpu, kGuarded);
  Tensor x = test.tensor(3);
  int32_t* data = x.data<int32_t>();
  volatile int32_t seen = 0;
  EXPECT_DEATH(seen = data[1], "");
  EXPECT_DEATH(data[1] = 1, "");
  write_values<int32_t>(test.device, numbers(3), x);
  EXPECT_DEATH(seen = data[1], "") << "after a copy the memory is closed again";
  EXPECT_EQ(seen, 0);
}

TEST(GuardedMemory, ALaunchOpensTheMemoryAndNests) {
  DeviceUnderTest test(DeviceKind::kCpu, kGuarded);
  Tensor x = test.tensor(3);
  launch(test.ctx, [&](auto&) {
    x.data<int32_t>()[0] = 7;
    launch(test.ctx, [&](auto&) { x.data<int32_t>()[1] = 8; });
    write_value(test.device, int32_t{9}, x.data<int32_t>() + 2);
    x.data<int32_t>()[2] += 1;
  });
  EXPECT_EQ(read_values<int32_t>(test.device, x), (std::vector<int32_t>{7, 8, 10}));
  EXPECT_DEATH(x.data<int32_t>()[0] = 1, "");
}

TEST(GuardedMemory, AKernelThatThrowsLeavesTheMemoryClosed) {
  DeviceUnderTest test(DeviceKind::kCpu, kGuarded);
  Tensor x = test.tensor(3);
  EXPECT_THROW(launch(test.ctx, [](auto&) { throw ShapeError("no"); }), ShapeError);
  EXPECT_DEATH(x.data<int32_t>()[0] = 1, "");
}

TEST(Device, SaysHowToGetWhatTheBuildLacks) {
  if (kHasCuda) GTEST_SKIP() << "this build has CUDA";
  for (const auto& [kind, meta_of] :
       {std::pair(DeviceKind::kCuda, DeviceKind::kCpu), std::pair(DeviceKind::kMeta, DeviceKind::kCuda)}) {
    try {
      Device device(kind, {.meta_of = meta_of});
      ADD_FAILURE() << "there is a device";
    } catch (const DeviceError& error) {
      EXPECT_NE(std::string(error.what()).find("-DMEGATRON_CUDA=ON"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(Device(DeviceKind::kMeta, {.guard = true}), ConfigError);
}

}  // namespace
}  // namespace megatron
