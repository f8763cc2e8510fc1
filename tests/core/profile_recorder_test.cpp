#include "megatron/core/profile_recorder.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "megatron/core/context.h"
#include "megatron/core/copy.h"

namespace megatron {
namespace {

/// An op without work, on every device.
constexpr auto kNothing = [](auto&) {};

struct Recorded {
  explicit Recorded(DeviceKind kind = DeviceKind::kCpu) : device(kind, {.capacity_bytes = 1 << 20}) {}
  void run(std::string_view name) { launch(ctx, {.name = name}, kNothing); }
  std::vector<std::string> names_of(const ProfileRecorder::Records& records) {
    std::vector<std::string> names;
    for (const OpRecord& op : records.ops) names.emplace_back(op.name);
    return names;
  }
  Device device;
  StepState step;
  Context ctx{.device = device, .step = step, .key = RandomKey::from_seed(1)};
};

TEST(ProfileRecorder, KeepsOpsFromStartToStopOnly) {
  Recorded test;
  ProfileRecorder recorder(test.device, ProfileRecorder::Mode::kRecord);
  test.run("before");
  recorder.start();
  test.run("a");
  test.run("b");
  recorder.stop();
  test.run("after");
  EXPECT_EQ(test.names_of(recorder.take()), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(recorder.take().ops.empty());
}

TEST(ProfileRecorder, NamesAnOpAfterItsSourceFileUnlessItsFrontDoes) {
  Recorded test;
  ProfileRecorder recorder(test.device, ProfileRecorder::Mode::kRecord);
  recorder.start();
  const Shape shape{3, 5};
  {
    const PlaceScope place(test.ctx, {"decoder.layers.1.mlp", Pass::kInputGradient});
    launch(test.ctx, {.shape = &shape}, kNothing);
  }
  launch(test.ctx, kNothing);
  const ProfileRecorder::Records records = recorder.take();
  ASSERT_EQ(records.ops.size(), 2u);
  EXPECT_EQ(records.ops[0].name, "profile_recorder_test");
  EXPECT_EQ(records.ops[0].place.module, "decoder.layers.1.mlp");
  EXPECT_EQ(records.ops[0].place.pass, Pass::kInputGradient);
  EXPECT_EQ(records.ops[0].shape, shape);
  EXPECT_EQ(records.ops[1].name, "profile_recorder_test");
  EXPECT_EQ(records.ops[1].place.module, "");
  EXPECT_FALSE(records.ops[1].shape.has_value());
}

TEST(ProfileRecorder, TimesOfInnerRangesAndOpsLieInTheOuterOnes) {
  Recorded test;
  ProfileRecorder recorder(test.device, ProfileRecorder::Mode::kRecord);
  recorder.start();
  {
    const ProfiledRange outer(test.device.profiler, {.name = "outer"});
    {
      const ProfiledRange inner(test.device.profiler, {.name = "F", .chunk = 1, .micro_batch = 2});
      test.run("op");
    }
    const ProfiledRange second(test.device.profiler, {.name = "second"});
  }
  const ProfileRecorder::Records records = recorder.take();
  ASSERT_EQ(records.ranges.size(), 3u);
  const TimeSpan outer = records.ranges[0].host, inner = records.ranges[1].host, second = records.ranges[2].host;
  const TimeSpan op = records.ops.at(0).host;
  EXPECT_EQ(records.ranges[1].note.micro_batch, 2);
  EXPECT_LE(outer.begin_ns, inner.begin_ns);
  EXPECT_LE(inner.begin_ns, op.begin_ns);
  EXPECT_LE(op.begin_ns, op.end_ns);
  EXPECT_LE(op.end_ns, inner.end_ns);
  EXPECT_LE(inner.end_ns, second.begin_ns);
  EXPECT_LE(second.end_ns, outer.end_ns);
  EXPECT_EQ(records.ops[0].device.begin_ns, op.begin_ns);
  EXPECT_EQ(records.ops[0].device.end_ns, op.end_ns);
}

TEST(ProfileRecorder, AnOpThatThrowsHasAnEnd) {
  Recorded test;
  ProfileRecorder recorder(test.device, ProfileRecorder::Mode::kRecord);
  recorder.start();
  EXPECT_THROW(launch(test.ctx, {.name = "bad"}, [](auto& /*stream*/) { throw std::runtime_error("x"); }),
               std::runtime_error);
  test.run("good");
  const ProfileRecorder::Records records = recorder.take();
  ASSERT_EQ(records.ops.size(), 2u);
  EXPECT_LE(records.ops[0].host.end_ns, records.ops[1].host.begin_ns);
  EXPECT_GT(records.ops[0].host.end_ns, 0);
}

TEST(ProfileRecorder, SeesCopiesOfTheHostAndNothingOnMeta) {
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kMeta}) {
    Recorded test(kind);
    ProfileRecorder recorder(test.device, ProfileRecorder::Mode::kRecord);
    recorder.start();
    Tensor x = test.ctx.empty("x", {3}, DType::kInt32);
    fill_zero(test.device, x.data<int32_t>(), x.bytes());
    write_values<int32_t>(test.device, std::vector<int32_t>{1, 2, 3}, x);
    read_values<int32_t>(test.device, x);
    test.run("op");
    const std::vector<std::string> all{"fill_zero", "copy_from_host", "copy_to_host", "op"};
    EXPECT_EQ(test.names_of(recorder.take()), kind == DeviceKind::kCpu ? all : std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace megatron
