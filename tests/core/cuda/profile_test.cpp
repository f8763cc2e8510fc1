// Times of ops on a GPU, brought to the host's clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "megatron/core/copy.h"
#include "megatron/core/profile_recorder.h"
#include "tests/testing/cuda_test_device.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The clocks are compared where an event needs some microseconds to come back; its resolution is half of one.
constexpr int64_t kSlackNs = 50'000;

TEST(CudaProfile, OpsLieInOrderBetweenTheirLaunchAndTheEndOfTheWork) {
  if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
  TestDevice test(DeviceKind::kCuda);
  const int64_t large = int64_t{256} << 20, small = 1024;
  Tensor x = test.context().empty("x", {large}, DType::kUInt8), y = test.context().empty("y", {large}, DType::kUInt8);
  fill_zero(test.device, x.data<uint8_t>(), large);
  test.device.synchronize();
  ProfileRecorder recorder(test.device, ProfileRecorder::Mode::kRecordAndAnnotate);
  for (int round = 0; round < 3; ++round) {  // events are used again
    recorder.start();
    const int64_t begin = now_ns();
    {
      const ProfiledRange range(test.device.profiler, {.name = "round"});
      for (int i = 0; i < 5; ++i)
        copy_on_device(test.device, x.data<uint8_t>(), y.data<uint8_t>(), i % 2 == 0 ? large : small);
    }
    recorder.stop();
    test.device.synchronize();
    const int64_t end = now_ns();
    const ProfileRecorder::Records records = recorder.take();
    ASSERT_EQ(records.ops.size(), 5u);
    int64_t before = begin - kSlackNs, least_large = end - begin, most_small = 0;
    for (size_t i = 0; i < 5; ++i) {
      const OpRecord& op = records.ops[i];
      EXPECT_EQ(op.name, "copy_on_device");
      EXPECT_GE(op.device.begin_ns, before) << i;
      EXPECT_GE(op.device.begin_ns + kSlackNs, op.host.begin_ns) << i;
      EXPECT_LE(op.device.end_ns, end + kSlackNs) << i;
      before = op.device.end_ns;
      if (i % 2 == 0)
        least_large = std::min(least_large, op.device.duration_ns());
      else
        most_small = std::max(most_small, op.device.duration_ns());
    }
    EXPECT_GT(least_large, most_small) << "256 MiB and 1 KiB";
    EXPECT_LT(records.ops[4].host.end_ns, end);
  }
}

}  // namespace
}  // namespace megatron::testing
