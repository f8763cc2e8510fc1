// check() on a GPU: against fp64 on the CPU, and the plan of meta against the real run.
#include <gtest/gtest.h>

#include "tests/testing/cuda_test_device.h"
#include "tests/testing/op_run.h"

namespace megatron::testing {
namespace {

void check_plan(const OpCase& op, DType dtype, Phase phase, const OpOutcome& real) {
  const OpOutcome meta =
      run(op, {.dtype = dtype, .device = DeviceKind::kMeta, .phase = phase, .meta_of = DeviceKind::kCuda});
  EXPECT_EQ(real.events, meta.events) << op.name << ": meta log";
  EXPECT_EQ(real.peak_bytes, meta.peak_bytes) << op.name << ": meta peak";
  EXPECT_EQ(real.live_bytes, meta.live_bytes) << op.name << ": memory is left";
}

}  // namespace

void check(const OpCase& op) {
  SCOPED_TRACE(op.name);
  if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
  const OpOutcome exact = run(op, {});
  for (DType dtype : op.dtypes) {
    const OpSetup setup{.dtype = dtype, .device = DeviceKind::kCuda};
    if (!op.is_on_cuda) {
      EXPECT_THROW(run(op, setup), NotSupported);
      continue;
    }
    const OpOutcome fused = run(op, setup), again = run(op, setup);
    expect_close(op, dtype, fused, exact);
    EXPECT_EQ(fused.outputs, again.outputs) << op.name << ": two runs";
    EXPECT_EQ(fused.gradients, again.gradients) << op.name << ": two runs";
    check_plan(op, dtype, Phase::kBW, fused);
    OpSetup apart = setup;
    apart.phase = Phase::kB;
    const OpOutcome split = run(op, apart);
    EXPECT_EQ(fused.gradients, split.gradients) << op.name << ": B then W against BW";
    check_plan(op, dtype, Phase::kB, split);
  }
}

}  // namespace megatron::testing
