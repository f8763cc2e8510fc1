// One run of an OpCase on one device, in one dtype.
#pragma once

#include "tests/testing/op_case.h"

namespace megatron::testing {

struct OpSetup {
  DType dtype = DType::kFloat64;
  DeviceKind device = DeviceKind::kCpu;
  Phase phase = Phase::kBW;
  DeviceKind meta_of = DeviceKind::kCpu;
  int bumped = -1;  // finite differences: tensor (inputs first, then parameters) and element
  int64_t element = 0;
  double bump = 0;
};

struct OpOutcome {
  double loss = 0;
  std::vector<std::vector<double>> outputs, gradients;  // of inputs, then of trainable parameters
  std::vector<Arena::Event> events;
  int64_t peak_bytes = 0, live_bytes = 0;
};

OpOutcome run(const OpCase& op, const OpSetup& setup);

/// Expects the results in `dtype` near those of fp64, on operands that are not rounded: the bound covers the rounding
/// of operands too.
void expect_close(const OpCase& op, DType dtype, const OpOutcome& low, const OpOutcome& exact);

}  // namespace megatron::testing
