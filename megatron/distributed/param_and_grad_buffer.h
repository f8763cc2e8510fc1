// One contiguous gradient buffer for many parameters. Megatron Core: core/distributed/param_and_grad_buffer.py.
#pragma once

#include <vector>

#include "megatron/autograd/parameter.h"

namespace megatron {

/// Gradients lie in reverse order of registration, roughly the order in which backward completes them; each begins at a
/// multiple of 64 elements. Gaps are zero.
class ParamAndGradBuffer {
 public:
  static constexpr int64_t kAlignment = 64;  // elements; Megatron's start alignment with a distributed optimizer

  /// Gives every trainable one of `parameters` its main_grad. @param grad_dtype float32, or float64 for float64
  /// weights.
  ParamAndGradBuffer(const Context& ctx, const std::vector<Parameter*>& parameters, DType grad_dtype);

  /// The parameters that have a gradient here, in registration order.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  Tensor& grads() { return grads_; }
  const Tensor& grads() const { return grads_; }

  /// Start and end of a step for all parameters (tape.md): first writes overwrite, unused gradients become zero.
  void begin_step();
  void finish_step(const Context& ctx);

 private:
  std::vector<Parameter*> parameters_;
  Tensor grads_;
};

}  // namespace megatron
