#include "tests/testing/op_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatron/kernels/elementwise.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

struct Setup {
  DType dtype = DType::kFloat64;
  DeviceKind device = DeviceKind::kCpu;
  Phase phase = Phase::kBW;
  int bumped = -1;  // finite differences: tensor (inputs first, then parameters) and element
  int64_t element = 0;
  double bump = 0;
};

struct Outcome {
  double loss = 0;
  std::vector<std::vector<double>> outputs, gradients;  // of inputs, then of trainable parameters
  std::vector<Arena::Event> events;
  int64_t peak_bytes = 0, live_bytes = 0;
};

void bump_element(Tensor& x, int64_t element, double bump) {
  if (x.view().data) x.data<double>()[element] += bump;
}

OpOperands make_operands(const Context& ctx, const OpCase& op, const Setup& setup) {
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
    launch(ctx, [&](auto&) {
      dispatch_floating(setup.dtype, [&]<class T>() {
        for (int64_t e = 0; e < p.shape().num_elements(); ++e) {
          T& value = p.value().data<T>()[e];
          value = static_cast<T>(static_cast<double>(value) + op.parameters[i].offset);
        }
      });
    });
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

Outcome run(const OpCase& op, const Setup& setup) {
  Outcome out;
  TestDevice test(setup.device);
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
        const std::vector<double> y = values_of(outputs[i]), w = values_of(g);
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
      out.gradients.push_back(dx.defined() ? values_of(dx) : std::vector<double>{});
    }
    for (auto& p : operands.parameters) {
      if (!p->is_trainable()) continue;
      p->finish(ctx);
      EXPECT_TRUE(p->is_ready());
      out.gradients.push_back(values_of(p->main_grad()));
    }
  }
  out.events = test.device.arena.events();
  out.peak_bytes = test.device.arena.high_water_bytes();
  out.live_bytes = test.device.arena.total().live;
  return out;
}

void check_gradients(const OpCase& op) {
  const Outcome exact = run(op, {});
  EXPECT_EQ(exact.live_bytes, 0) << "memory is left";
  size_t slot = 0;
  const size_t num_tensors = op.inputs.size() + op.parameters.size();
  for (size_t t = 0; t < num_tensors; ++t) {
    if (t >= op.inputs.size() && !op.parameters[t - op.inputs.size()].is_trainable) continue;
    const std::vector<double>& gradient = exact.gradients[slot++];
    const Shape& shape = t < op.inputs.size() ? op.inputs[t] : op.parameters[t - op.inputs.size()].shape;
    ASSERT_EQ(static_cast<int64_t>(gradient.size()), shape.num_elements()) << "tensor " << t << " got no gradient";
    double largest = 1, error = 0;
    for (double g : gradient) largest = std::max(largest, std::abs(g));
    for (int64_t e = 0; e < shape.num_elements(); ++e) {
      Setup up{.bumped = static_cast<int>(t), .element = e, .bump = kDifferenceStep}, down = up;
      down.bump = -kDifferenceStep;
      const double difference = (run(op, up).loss - run(op, down).loss) / (2 * kDifferenceStep);
      const double difference_error = std::abs(difference - gradient[static_cast<size_t>(e)]);
      error = std::max(error, std::isnan(difference_error) ? HUGE_VAL : difference_error);
    }
    EXPECT_LE(error / largest, kGradientTolerance) << op.name << ": gradient of tensor " << t;
  }
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, double bound,
                  const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double scale = 1;
  for (double e : expected) scale = std::max(scale, std::abs(e));
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_LE(std::abs(actual[i] - expected[i]), bound * scale) << what << ", element " << i;
}

/// Against fp64 on operands that are not rounded, so the bound covers the rounding of operands too.
void check_dtypes(const OpCase& op) {
  const Outcome exact = run(op, {});
  for (DType dtype : op.dtypes) {
    const Outcome low = run(op, {.dtype = dtype});
    const double bound = tolerance(dtype, op.reduction_length, op.magnitude);
    for (size_t i = 0; i < exact.outputs.size(); ++i)
      expect_close(low.outputs[i], exact.outputs[i], bound, fmt::format("{} {} output {}", op.name, name_of(dtype), i));
    for (size_t i = 0; i < exact.gradients.size(); ++i)
      expect_close(low.gradients[i], exact.gradients[i], bound,
                   fmt::format("{} {} gradient {}", op.name, name_of(dtype), i));
  }
}

void check_meta_and_split(const OpCase& op) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    for (Phase phase : {Phase::kB, Phase::kBW}) {
      const Outcome real = run(op, {.dtype = dtype, .phase = phase});
      const Outcome meta = run(op, {.dtype = dtype, .device = DeviceKind::kMeta, .phase = phase});
      EXPECT_EQ(real.events, meta.events) << op.name << ": meta log";
      EXPECT_EQ(real.peak_bytes, meta.peak_bytes) << op.name << ": meta peak";
    }
    const Outcome fused = run(op, {.dtype = dtype}), split = run(op, {.dtype = dtype, .phase = Phase::kB});
    EXPECT_EQ(fused.gradients, split.gradients) << op.name << ": B then W against BW";
    EXPECT_EQ(fused.outputs, run(op, {.dtype = dtype}).outputs) << op.name << ": two runs";
  }
}

}  // namespace

void check(const OpCase& op) {
  SCOPED_TRACE(op.name);
  check_gradients(op);
  check_dtypes(op);
  check_meta_and_split(op);
}

}  // namespace megatron::testing
