// One description of an op gives all its tests: gradient against finite differences, lower precisions against fp64, the
// meta run against the real one, split against fused backward.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "megatron/autograd/tape.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {

struct OpParameter {
  Shape shape;
  bool is_trainable = true;
  double offset = 0;  // added to values in [-1, 1): 1.5 keeps norm weights away from 0
};

/// The operands of a case. Inputs are watched, parameters have gradients.
struct OpOperands {
  std::vector<Tensor> inputs;
  std::vector<std::unique_ptr<Parameter>> parameters;
};

struct OpCase {
  std::string name;
  std::vector<Shape> inputs;
  std::vector<OpParameter> parameters;
  /// The op under test; outputs are weighted with fixed random numbers and summed to the loss.
  std::function<std::vector<Tensor>(Context&, OpOperands&)> forward;
  int64_t reduction_length = 1;  // longest sum that makes one element
  double magnitude = 1;          // of the terms of such a sum
  std::vector<DType> dtypes = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  bool is_on_cuda = true;  // false: CUDA has no kernel for it and says so
};

/// Runs all checks as gtest expectations. op_case.cpp has those of the CPU, op_case_cuda.cpp those of a GPU; a test
/// binary links one of them.
void check(const OpCase& op);

}  // namespace megatron::testing
