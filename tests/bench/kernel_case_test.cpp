#include "megatron/bench/kernel_case.h"

#include <gtest/gtest.h>

#include <set>

#include "megatron/bench/device_facts.h"
#include "megatron/core/copy.h"
#include "megatron/core/device_timer.h"

namespace megatron {
namespace {

TEST(Timing, IsTheBestTheMedianAndTheSpreadOfTheQuartiles) {
  const Timing odd = timing_of({5, 1, 4, 2, 3});
  EXPECT_EQ(odd.best, 1);
  EXPECT_EQ(odd.median, 3);
  EXPECT_DOUBLE_EQ(odd.spread, (4.0 - 2.0) / 3.0);
  EXPECT_EQ(odd.num_calls, 5);
  const Timing even = timing_of({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(even.median, 2.5);
  EXPECT_DOUBLE_EQ(even.spread, (3.25 - 1.75) / 2.5);
  const Timing one = timing_of({7});
  EXPECT_EQ(one.median, 7);
  EXPECT_EQ(one.spread, 0);
}

TEST(SecondsOfCalls, HasOneForEachCallInOrder) {
  Device device(DeviceKind::kCpu, {});
  std::vector<int64_t> calls;
  const std::vector<double> seconds = seconds_of_calls(device, 4, [&](int64_t i) { calls.push_back(i); });
  EXPECT_EQ(calls, (std::vector<int64_t>{0, 1, 2, 3}));
  ASSERT_EQ(seconds.size(), 4u);
  for (double value : seconds) EXPECT_GE(value, 0);
}

/// A case of `bytes` bytes that records the operands of each call.
struct CountingCase {
  explicit CountingCase(int64_t bytes) {
    kernel.name = "counting";
    kernel.prepare = [this, bytes](const Context& ctx) -> KernelCall {
      const Tensor x = constant_tensor(ctx, {bytes / 4}, DType::kFloat32, 0);
      return [this, x, number = num_sets++] { called.push_back(number); };
    };
  }
  KernelCase kernel;
  int num_sets = 0;
  std::vector<int> called;
};

TEST(Measure, AlternatesOperandsUntilTheyExceedTheCache) {
  BenchDevice bench(DeviceKind::kCpu, 1);
  CountingCase counting(1 << 12);
  const Timing timing = measure(bench, counting.kernel, {.warm_ups = 2, .repeats = 6, .rotation_bytes = (3 << 12) - 1});
  EXPECT_EQ(counting.num_sets, 3);
  EXPECT_EQ(counting.called, (std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(timing.num_calls, 6);
  EXPECT_EQ(bench.device().arena.total().live, int64_t{sizeof(StepState)});
}

TEST(Measure, NeedsAtMostOneSetOfOperandsPerCall) {
  BenchDevice bench(DeviceKind::kCpu, 1);
  CountingCase counting(64);
  measure(bench, counting.kernel, {.warm_ups = 1, .repeats = 4, .rotation_bytes = 1 << 30});
  EXPECT_EQ(counting.num_sets, 5);
  CountingCase warm(64);
  measure(bench, warm.kernel, {.warm_ups = 1, .repeats = 4});
  EXPECT_EQ(warm.num_sets, 1);
}

TEST(Measure, StopsWhenItsTimeIsOverButNotBeforeThreeCalls) {
  BenchDevice bench(DeviceKind::kCpu, 1);
  CountingCase counting(64);
  EXPECT_EQ(measure(bench, counting.kernel, {.repeats = 50, .seconds = 1e-12}).num_calls, 3);
  EXPECT_EQ(measure(bench, counting.kernel, {.repeats = 2, .seconds = 1e-12}).num_calls, 2);
  EXPECT_EQ(measure(bench, counting.kernel, {.repeats = 50, .seconds = 1e3}).num_calls, 50);
}

TEST(BenchDevice, TensorsOfAnyLengthAreFilled) {
  BenchDevice bench(DeviceKind::kCpu, 2);
  const int64_t n = (int64_t{5} << 19) + 3;  // more than two periods, not a multiple
  const Tensor x = random_tensor(bench.context(), {n}, DType::kFloat32, 2);
  const std::vector<float> values = read_values<float>(bench.device(), x);
  double sum = 0, squares = 0;
  for (float value : values) sum += value, squares += value * value;
  // There are 2^20 independent values.
  EXPECT_NEAR(sum / static_cast<double>(n), 0, 6 * 2 / 1024.0);
  EXPECT_NEAR(squares / static_cast<double>(n), 4, 6 * 4 * std::sqrt(2.0) / 1024.0);
  EXPECT_EQ(random_tensor(bench.context(), {0, 3}, DType::kBFloat16).num_elements(), 0);
  const std::vector<int64_t> ids = read_values<int64_t>(bench.device(), random_ids(bench.context(), {257}, 3));
  EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()), (std::set<int64_t>{0, 1, 2}));
}

TEST(CopyBandwidth, IsPositive) {
  BenchDevice bench(DeviceKind::kCpu, 1);
  EXPECT_GT(measure_copy_bandwidth(bench, {.repeats = 3}), 0);
}

TEST(KnownPeak, DependsOnNameAndDtype) {
  EXPECT_EQ(known_peak("NVIDIA H200", DType::kBFloat16)->flops, 989.5e12);
  EXPECT_EQ(known_peak("NVIDIA H200 NVL", DType::kBFloat16)->flops, 835.5e12);
  EXPECT_EQ(known_peak("NVIDIA H100 80GB HBM3", DType::kFloat16)->flops, 989.5e12);
  EXPECT_EQ(known_peak("NVIDIA H100 PCIe", DType::kFloat32)->flops, 51.2e12);
  EXPECT_EQ(known_peak("NVIDIA A100-SXM4-80GB", DType::kBFloat16)->flops, 312e12);
  EXPECT_EQ(known_peak("NVIDIA H200", DType::kFloat32, true)->flops, 494.75e12);
  EXPECT_EQ(known_peak("Tesla V100-SXM2-32GB", DType::kFloat32)->flops, 15.7e12);
  EXPECT_FALSE(known_peak("Tesla V100-SXM2-32GB", DType::kFloat32, true));
  EXPECT_FALSE(known_peak("NVIDIA H200", DType::kFloat64));
  EXPECT_FALSE(known_peak("AMD EPYC 9654", DType::kFloat32));
  EXPECT_FALSE(known_peak("", DType::kFloat32));
}

TEST(RotationBytes, AreTwiceTheCacheWithinBounds) {
  EXPECT_EQ(rotation_bytes_for(0), int64_t{256} << 20);
  EXPECT_EQ(rotation_bytes_for(int64_t{200} << 20), int64_t{400} << 20);
  EXPECT_EQ(rotation_bytes_for(int64_t{1} << 40), int64_t{512} << 20);
}

}  // namespace
}  // namespace megatron
