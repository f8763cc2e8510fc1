// Work that is recorded as a CUDA graph.
#include "megatron/core/cuda_graph.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/core/copy.h"
#include "tests/testing/cuda_test_device.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

class CudaGraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
    test.emplace(DeviceKind::kCuda);
    x = test->context().empty("x", {1}, DType::kInt32);
    y = test->context().empty("y", {1}, DType::kInt32);
  }
  std::unique_ptr<CudaGraph> recorded(const std::function<void()>& work) {
    return record_cuda_graph(test->device.cuda_stream(), work);
  }
  void copy_x_to_y() { copy_on_device(test->device, x.data<int32_t>(), y.data<int32_t>(), 4); }
  void set_x(int32_t value) { write_value(test->device, value, x.data<int32_t>()); }
  int32_t read_y() { return read_value(test->device, y.data<int32_t>()); }

  std::optional<TestDevice> test;
  Tensor x, y;
};

TEST_F(CudaGraphTest, RunsAtEachLaunchOnWhatMemoryHoldsThen) {
  set_x(1);
  fill_zero(test->device, y.data<int32_t>(), 4);
  const auto graph = recorded([&] { copy_x_to_y(); });
  EXPECT_EQ(read_y(), 0) << "a recording runs nothing";
  EXPECT_EQ(graph->num_nodes(), 1);
  for (const int32_t value : {7, -3}) {
    set_x(value);
    graph->launch();
    EXPECT_EQ(read_y(), value);
  }
}

TEST_F(CudaGraphTest, RejectsTheHostsReadsAndWritesAndLeavesTheStreamUsable) {
  EXPECT_THROW(recorded([&] { set_x(5); }), InternalError);
  EXPECT_THROW(recorded([&] { read_y(); }), DeviceError);
  EXPECT_THROW(recorded([&] { throw ConfigError("the work's own"); }), ConfigError);
  set_x(11);
  recorded([&] { copy_x_to_y(); })->launch();
  EXPECT_EQ(read_y(), 11);
}

}  // namespace
}  // namespace megatron::testing
