#include "megatron/training/step_metrics.h"

#include <gtest/gtest.h>

#include <utility>

#include "megatron/core/copy.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/recorded_operations.h"
#include "tests/testing/test_device.h"

namespace megatron {
namespace {

using testing::RankContext;
using testing::run_ranks;
using testing::TestDevice;

template <class T>
void write(const Context& ctx, StepMetrics& metrics, std::string_view name, std::vector<T> values) {
  Tensor place = metrics.accumulator(name);
  write_values(ctx.device, std::span<const T>(values), place);
}

std::vector<StepMetric> read(const Context& ctx, StepMetrics& metrics) {
  Readback readback;
  metrics.add_to(readback);
  readback.wait(ctx);
  return metrics.values();
}

TEST(StepMetrics, AreReducedAsEachIsToBeAndReadWithOneWait) {
  run_ranks(3, [](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    const Context ctx = test.context();
    using enum MetricReduction;
    StepMetrics metrics(ctx, {{.name = "tokens", .dtype = DType::kInt64, .size = 2, .groups = {rank.group}},
                              {.name = "auxiliary loss", .groups = {rank.group}},
                              {.name = "load", .reduction = kMean, .groups = {rank.group}},
                              {.name = "largest logit", .reduction = kMax, .groups = {rank.group}},
                              {.name = "own"}});
    const double r = rank.rank;
    write<int64_t>(ctx, metrics, "tokens", {rank.rank, 10});
    write<double>(ctx, metrics, "auxiliary loss", {0.5 * r});
    write<double>(ctx, metrics, "load", {r});
    write<double>(ctx, metrics, "largest logit", {-r});
    write<double>(ctx, metrics, "own", {r});
    metrics.reduce();
    const std::vector<StepMetric> values = read(ctx, metrics);
    EXPECT_EQ(values.at(0).values, (std::vector<double>{0 + 1 + 2, 30}));
    EXPECT_EQ(value_of(values, "auxiliary loss"), 1.5);
    EXPECT_EQ(value_of(values, "load"), 1);
    EXPECT_EQ(value_of(values, "largest logit"), 0);
    EXPECT_EQ(value_of(values, "own"), r);
    EXPECT_THROW(value_of(values, "tokens"), InternalError);
    EXPECT_THROW(value_of(values, "absent"), InternalError);
  });
}

TEST(StepMetrics, ShareACollectiveIfReducedAlikeAndAreReducedOnce) {
  run_ranks(2, [](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    const Context ctx = test.context();
    StepMetrics metrics(ctx, {{.name = "a", .groups = {rank.group}},
                              {.name = "count", .dtype = DType::kInt64, .groups = {rank.group}},
                              {.name = "b", .size = 3, .groups = {rank.group}}});
    const int64_t first = rank.world.recorder().num_operations();
    write<double>(ctx, metrics, "a", {1});
    write<double>(ctx, metrics, "b", {2, 3, 4});
    metrics.reduce_block_of("b");
    EXPECT_EQ(rank.world.recorder().num_operations() - first, 1);
    metrics.reduce();
    EXPECT_EQ(rank.world.recorder().num_operations() - first, 2);
    const std::vector<StepMetric> values = read(ctx, metrics);
    EXPECT_EQ(value_of(values, "a"), 2);
    EXPECT_EQ(values.at(2).values, (std::vector<double>{4, 6, 8}));
    EXPECT_EQ(value_of(values, "count"), 0) << "accumulators begin at zero";
  });
}

TEST(StepMetrics, LieAtTheSameAddressesInEveryStep) {
  TestDevice test(DeviceKind::kCpu, 1);
  const Context ctx = test.context();
  std::vector<const void*> addresses;
  for (int step = 0; step < 2; ++step) {
    const StepMetrics metrics(ctx, {{.name = "a"}, {.name = "b", .dtype = DType::kInt64}});
    for (const char* name : {"a", "b"}) addresses.push_back(std::as_const(metrics).accumulator(name).view().data);
  }
  EXPECT_EQ(addresses[0], addresses[2]);
  EXPECT_EQ(addresses[1], addresses[3]);
}

TEST(StepMetrics, RefuseTwoOfOneNameAndOtherDtypes) {
  TestDevice test(DeviceKind::kCpu, 1);
  EXPECT_THROW(StepMetrics(test.context(), {{.name = "a"}, {.name = "a"}}), InternalError);
  EXPECT_THROW(StepMetrics(test.context(), {{.name = "a", .dtype = DType::kFloat32}}), InternalError);
}

}  // namespace
}  // namespace megatron
