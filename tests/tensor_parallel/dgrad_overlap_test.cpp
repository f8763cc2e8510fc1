// The sum of a column-parallel layer's input gradient is under way while the gradient of its weight is computed.
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "megatron/core/profiler.h"
#include "megatron/tensor_parallel/layers.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

constexpr int64_t kIn = 6, kOut = 8;

/// Tells when the product that makes a weight's gradient is done.
class WeightProductWatch final : public Profiler {
 public:
  explicit WeightProductWatch(std::promise<void>& done) : done_(done) {}
  void begin_op(const OpPlace& place, const OpNote&, const std::source_location& where) override {
    is_product_ =
        place.pass == Pass::kWeightGradient && std::string_view(where.file_name()).ends_with("ops/linear.cpp");
  }
  void end_op() noexcept override {
    if (std::exchange(is_product_, false)) done_.set_value();
  }
  void begin_range(const RangeNote&) override {}
  void end_range() noexcept override {}

 private:
  std::promise<void>& done_;
  bool is_product_ = false;
};

/// Backward of two ranks, of which rank 1 comes to the sum of the input gradient only when rank 0 has the gradient of
/// its weight. @return whether rank 0 got there without the sum.
bool weight_product_comes_first(bool sequence_parallel) {
  std::promise<void> done;
  const std::shared_future<void> product = done.get_future().share();
  bool came_first = false;
  run_ranks(2, [&](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    WeightProductWatch watch(done);
    if (rank.rank == 0) test.device.profiler = &watch;
    Context ctx = test.context();
    const ColumnParallelLinear linear(ctx,
                                      {.name = "linear",
                                       .input_size = kIn,
                                       .output = {.sections = {{kOut, false}}},
                                       .sequence_parallel = sequence_parallel},
                                      rank.group);
    Parameter& weight = *linear.parameters()[0];
    weight.initialize(ctx);
    weight.set_main_grad(ctx.empty("gradient", weight.shape(), weight.dtype(), MemoryUse::kGradients));
    weight.begin_step();
    Tape tape(ctx.device);
    ctx.tape = &tape;
    ctx.mode = GradMode::kRecord;
    Tensor x = ctx.empty("x", {4, 2, kIn}, weight.dtype());
    fill_uniform(ctx, x, "x");
    tape.watch(x);
    const Tensor y = linear.forward(ctx, x);
    // The product that makes the input gradient reads the weight: behind the gather for W, before the sum.
    if (rank.rank == 1)
      weight.before_read = [&] {
        came_first = product.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
      };
    tape.seed(ctx, y.slot, y.detach());
    tape.backward(ctx, Phase::kBW, 0);
    EXPECT_TRUE(tape.is_done());
  });
  return came_first;
}

TEST(DgradOverlap, TheWeightGradientIsDoneBeforeTheAllReduceOfTheInputGradientIsWaitedFor) {
  EXPECT_TRUE(weight_product_comes_first(false));
}

TEST(DgradOverlap, TheWeightGradientIsDoneBeforeTheReduceScatterOfTheInputGradientIsWaitedFor) {
  EXPECT_TRUE(weight_product_comes_first(true));
}

}  // namespace
}  // namespace megatron::testing
