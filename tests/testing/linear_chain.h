// A chain of linear layers on one tape: the least model for tests of the tape.
#pragma once

#include <memory>
#include <vector>

#include "megatron/ops/linear.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {

/// `num_layers` weights [3, 3] with gradients that hold NaN until they are written.
struct LinearChain {
  static constexpr int64_t kSize = 3;

  explicit LinearChain(int num_layers, bool is_trainable = true) {
    ctx.mode = GradMode::kRecord;
    ctx.tape = &tape;
    for (int i = 0; i < num_layers; ++i) {
      weights.push_back(std::make_unique<Parameter>(ctx, ParameterOptions{.name = fmt::format("w{}", i),
                                                                          .shard = ShardSpec::whole({kSize, kSize}),
                                                                          .dtype = DType::kFloat64,
                                                                          .is_trainable = is_trainable}));
      fill_uniform(ctx, weights.back()->value(), weights.back()->name());
      weights.back()->set_main_grad(ctx.empty("gradient", {kSize, kSize}, DType::kFloat64, MemoryUse::kGradients));
      weights.back()->begin_step();
    }
  }
  Tensor tensor(std::string_view name) {
    Tensor x = ctx.empty(name, {2, 1, kSize}, DType::kFloat64);
    fill_uniform(ctx, x, name);
    return x;
  }
  Tensor watched(std::string_view name) {
    Tensor x = tensor(name);
    tape.watch(x);
    return x;
  }
  Tensor layer(Context& c, const Tensor& x, size_t index) { return linear(c, x, *weights[index], nullptr); }
  std::vector<double> gradient(size_t index) const { return values_of(weights[index]->main_grad()); }

  TestDevice test{DeviceKind::kCpu, 1};
  Context ctx = test.context();
  Tape tape{test.device};
  std::vector<std::unique_ptr<Parameter>> weights;
};

}  // namespace megatron::testing
