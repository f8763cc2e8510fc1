#include "tests/testing/op_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatron/core/copy.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

void bump_element(Tensor& x, int64_t element, double bump) {
  if (x.view().data) x.data<double>()[element] += bump;
}

void add_offset(const Context& ctx, Tensor& x, double offset) {
  if (offset == 0) return;
  dispatch_floating(x.dtype(), [&]<class T>() {
    std::vector<T> values = read_values<T>(ctx.device, x);
    for (T& value : values) value = static_cast<T>(static_cast<double>(value) + offset);
    write_values<T>(ctx.device, values, x);
  });
}

OpOperands make_operands(const Context& ctx, const OpCase& op, const OpSetup& setup) {
  OpOperands operands;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    operands.inputs.push_back(ctx.empty("input", op.inputs[i], setup.dtype));
    fill_uniform(ctx, operands.inputs.back(), fmt::format("input {}", i));
    if (setup.bumped == static_cast<int>(i)) bump_element(operands.inputs.back(), setup.element, setup.bump);
  }
  for (size_t i = 0; i < op.parameters.size(); ++i) {
    operands.parameters.push_back(
        std::make_unique<Parameter>(ctx, ParameterOptions{.name = fmt::format("parameter {}", i),
                                                          .shard = ShardSpec::whole(op.parameters[i].shape),
                                                          .dtype = setup.dtype,
                                                          .is_trainable = op.parameters[i].is_trainable}));
    Parameter& p = *operands.parameters.back();
    fill_uniform(ctx, p.value(), p.name());
    add_offset(ctx, p.value(), op.parameters[i].offset);
    if (setup.bumped == static_cast<int>(op.inputs.size() + i)) bump_element(p.value(), setup.element, setup.bump);
    const DType gradient = setup.dtype == DType::kFloat64 ? setup.dtype : DType::kFloat32;
    p.set_main_grad(ctx.empty("main_grad", p.shape(), gradient, MemoryUse::kGradients));
    p.begin_step();
  }
  return operands;
}

/// Weights that turn outputs into a loss, and its gradient: outputs of any dtype.
Tensor upstream(const Context& ctx, const Tensor& y, size_t index) {
  Tensor g = ctx.empty_like("upstream", y);
  fill_uniform(ctx, g, fmt::format("upstream {}", index));
  return g;
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, double bound,
                  const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double scale = 1;
  for (double e : expected) scale = std::max(scale, std::abs(e));
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_LE(std::abs(actual[i] - expected[i]), bound * scale) << what << ", element " << i;
}

}  // namespace

OpOutcome run(const OpCase& op, const OpSetup& setup) {
  OpOutcome out;
  TestDevice test(setup.device, 2, setup.meta_of);
  {
    Context ctx = test.context();
    OpOperands operands = make_operands(ctx, op, setup);
    Tape tape(test.device);
    ctx.tape = &tape;
    ctx.mode = GradMode::kRecord;
    for (Tensor& x : operands.inputs) tape.watch(x);
    {
      std::vector<Tensor> outputs = op.forward(ctx, operands);
      for (size_t i = 0; i < outputs.size(); ++i) {
        Tensor g = upstream(ctx, outputs[i], i);
        const std::vector<double> y = values_of(test.device, outputs[i]), w = values_of(test.device, g);
        for (size_t e = 0; e < y.size(); ++e) out.loss += y[e] * w[e];
        out.outputs.push_back(y);
        tape.seed(ctx, outputs[i].slot, std::move(g));
      }
    }
    tape.backward(ctx, setup.phase, 0);
    if (setup.phase == Phase::kB) tape.backward_weight(ctx, 0);
    EXPECT_TRUE(tape.is_done());
    for (const Tensor& x : operands.inputs) {
      const Tensor dx = tape.take_gradient(x.slot);
      out.gradients.push_back(dx.defined() ? values_of(test.device, dx) : std::vector<double>{});
    }
    for (auto& p : operands.parameters) {
      if (!p->is_trainable()) continue;
      p->finish(ctx);
      EXPECT_TRUE(p->is_ready());
      out.gradients.push_back(values_of(test.device, p->main_grad()));
    }
  }
  out.events = test.device.arena.events();
  out.peak_bytes = test.device.arena.high_water_bytes();
  out.live_bytes = test.device.arena.total().live;
  return out;
}

void expect_close(const OpCase& op, DType dtype, const OpOutcome& low, const OpOutcome& exact) {
  const double bound = tolerance(dtype, op.reduction_length, op.magnitude);
  ASSERT_EQ(low.outputs.size(), exact.outputs.size());
  ASSERT_EQ(low.gradients.size(), exact.gradients.size());
  for (size_t i = 0; i < exact.outputs.size(); ++i)
    expect_close(low.outputs[i], exact.outputs[i], bound, fmt::format("{} {} output {}", op.name, name_of(dtype), i));
  for (size_t i = 0; i < exact.gradients.size(); ++i)
    expect_close(low.gradients[i], exact.gradients[i], bound,
                 fmt::format("{} {} gradient {}", op.name, name_of(dtype), i));
}

}  // namespace megatron::testing
