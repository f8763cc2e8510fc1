#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/testing/op_run.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

void check_gradients(const OpCase& op) {
  const OpOutcome exact = run(op, {});
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
      OpSetup up{.bumped = static_cast<int>(t), .element = e, .bump = kDifferenceStep}, down = up;
      down.bump = -kDifferenceStep;
      const double difference = (run(op, up).loss - run(op, down).loss) / (2 * kDifferenceStep);
      const double difference_error = std::abs(difference - gradient[static_cast<size_t>(e)]);
      error = std::max(error, std::isnan(difference_error) ? HUGE_VAL : difference_error);
    }
    EXPECT_LE(error / largest, kGradientTolerance) << op.name << ": gradient of tensor " << t;
  }
}

void check_dtypes(const OpCase& op) {
  const OpOutcome exact = run(op, {});
  for (DType dtype : op.dtypes) expect_close(op, dtype, run(op, {.dtype = dtype}), exact);
}

void check_meta_and_split(const OpCase& op) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    for (Phase phase : {Phase::kB, Phase::kBW}) {
      const OpOutcome real = run(op, {.dtype = dtype, .phase = phase});
      const OpOutcome meta = run(op, {.dtype = dtype, .device = DeviceKind::kMeta, .phase = phase});
      EXPECT_EQ(real.events, meta.events) << op.name << ": meta log";
      EXPECT_EQ(real.peak_bytes, meta.peak_bytes) << op.name << ": meta peak";
    }
    const OpOutcome fused = run(op, {.dtype = dtype}), split = run(op, {.dtype = dtype, .phase = Phase::kB});
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
