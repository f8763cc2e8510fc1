#include "megatron/core/copy_queue.h"

#include <gtest/gtest.h>

#include <numeric>

#include "megatron/core/context.h"
#include "megatron/core/copy.h"

namespace megatron {
namespace {

struct CopiedDevice {
  explicit CopiedDevice(DeviceKind kind, bool guard = false)
      : device(kind, {.capacity_bytes = 1 << 20, .poison = true, .guard = guard}) {}
  Tensor on_device(int64_t n) { return ctx.empty("x", {n}, DType::kInt32); }
  Tensor on_host(int64_t n) { return ctx.empty_on_host("x", {n}, DType::kInt32, MemoryUse::kActivations); }
  Device device;
  StepState step;
  Context ctx{.device = device, .step = step, .key = RandomKey::from_seed(1)};
};

std::vector<int32_t> counted(int64_t n) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(CopyQueue, BringsWhatTheDeviceHasToTheHostAndBack) {
  for (const bool guard : {false, true}) {
    CopiedDevice test(DeviceKind::kCpu, guard);
    Tensor x = test.on_device(37), y = test.on_device(37), host = test.on_host(37);
    write_values<int32_t>(test.device, counted(37), x);
    CopyQueue &down = test.device.copies_to_host(), &up = test.device.copies_to_device();
    down.wait_for_kernels();
    down.copy(x.data<int32_t>(), host.data<int32_t>(), x.bytes());
    down.wait(down.mark());
    EXPECT_EQ(host.data<int32_t>()[36], 37) << "the host may read it";
    host.data<int32_t>()[0] = -1;
    up.copy(host.data<int32_t>(), y.data<int32_t>(), x.bytes());
    up.hold_kernels(up.mark());
    std::vector<int32_t> expected = counted(37);
    expected[0] = -1;
    EXPECT_EQ(read_values<int32_t>(test.device, y), expected);
  }
}

TEST(CopyQueue, CopiesNothingOnMeta) {
  CopiedDevice test(DeviceKind::kMeta);
  Tensor x = test.on_device(5), host = test.on_host(5);
  CopyQueue& queue = test.device.copies_to_host();
  queue.copy(x.data<int32_t>(), host.data<int32_t>(), x.bytes());
  queue.wait(queue.mark());
}

TEST(Copy, ReachesHostMemoryOfADevice) {
  for (const bool guard : {false, true}) {
    CopiedDevice test(DeviceKind::kCpu, guard);
    Tensor x = test.on_device(37), host = test.on_host(37), other = test.on_host(37);
    write_values<int32_t>(test.device, counted(37), host);
    EXPECT_EQ(read_values<int32_t>(test.device, host), counted(37));
    copy_on_device(test.device, host.data<int32_t>(), x.data<int32_t>(), x.bytes());
    EXPECT_EQ(read_values<int32_t>(test.device, x), counted(37));
    copy_on_device(test.device, x.data<int32_t>(), other.data<int32_t>(), x.bytes());
    EXPECT_EQ(read_values<int32_t>(test.device, other), counted(37));
    fill_zero(test.device, host.data<int32_t>(), host.bytes());
    copy_on_device(test.device, host.data<int32_t>(), other.data<int32_t>(), x.bytes());
    EXPECT_EQ(read_values<int32_t>(test.device, other), std::vector<int32_t>(37, 0));
  }
}

TEST(Arena, KnowsItsAddresses) {
  CopiedDevice test(DeviceKind::kCpu), meta(DeviceKind::kMeta);
  Tensor x = test.on_device(3), host = test.on_host(3), planned = meta.on_device(3);
  EXPECT_TRUE(test.device.arena.holds(x.data<int32_t>()));
  EXPECT_FALSE(test.device.pinned.holds(x.data<int32_t>()));
  EXPECT_TRUE(test.device.pinned.holds(host.data<int32_t>() + 2));
  EXPECT_FALSE(test.device.arena.holds(host.data<int32_t>()));
  EXPECT_FALSE(test.device.arena.holds(nullptr));
  EXPECT_FALSE(meta.device.arena.holds(planned.data<int32_t>()));
}

}  // namespace
}  // namespace megatron
