// A plan of a GPU's memory is made where there is none.
#include <gtest/gtest.h>

#include <algorithm>

#include "megatron/ops/linear.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

std::vector<Arena::Event> events_of_linear(DeviceKind meta_of) {
  TestDevice test(DeviceKind::kMeta, 1, meta_of);
  Context ctx = test.context();
  Parameter weight(ctx, {.name = "weight", .shard = ShardSpec::whole({5, 7}), .dtype = DType::kBFloat16});
  const Tensor x = ctx.empty("x", {3, 2, 7}, DType::kBFloat16);
  test.device.arena.clear_events();
  linear(ctx, x, weight, nullptr);
  return test.device.arena.events();
}

TEST(CudaPlan, NeedsNoGpuAndHasTheWorkspacesOfAGpu) {
  const auto has_workspace = [](const std::vector<Arena::Event>& events) {
    return std::ranges::any_of(events, [](const Arena::Event& event) { return event.bytes >= int64_t{32} << 20; });
  };
  EXPECT_TRUE(has_workspace(events_of_linear(DeviceKind::kCuda)));
  EXPECT_FALSE(has_workspace(events_of_linear(DeviceKind::kCpu)));
}

}  // namespace
}  // namespace megatron::testing
