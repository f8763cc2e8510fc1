// One contiguous buffer for the gradients, and with the distributed optimizer for the weights, of many parameters.
// Megatron Core: core/distributed/param_and_grad_buffer.py.
#pragma once

#include <vector>

#include "megatron/autograd/parameter.h"
#include "megatron/distributed/data_parallel_plan.h"

namespace megatron {

/// Elements [begin, end) of a parameter's shard, taken as flat: what one rank's optimizer steps.
struct FlatRange {
  Parameter* parameter = nullptr;
  int64_t begin = 0, end = 0;

  bool is_whole() const { return begin == 0 && end == parameter->shape().num_elements(); }
  /// The range of a tensor of the parameter's shape (value, gradient), as a vector.
  Tensor of(const Tensor& tensor) const { return tensor.reshape({tensor.num_elements()}).slice(0, begin, end - begin); }
};

/// Gradients lie in reverse order of registration, roughly the order in which backward completes them. Gaps are zero.
class ParamAndGradBuffer {
 public:
  /// One bucket for the gradients of a single rank. Gives every trainable one of `parameters` its main_grad.
  /// @param grad_dtype  float32, or float64 for float64 weights.
  ParamAndGradBuffer(const Context& ctx, const std::vector<Parameter*>& parameters, DType grad_dtype);
  /// @param chunk  the parameters that the plan numbers.
  /// @param with_params  weights move into a buffer of the same layout, so that a bucket of them can be gathered.
  ParamAndGradBuffer(const Context& ctx, BufferPlan plan, const std::vector<Parameter*>& chunk, bool with_params);

  /// The parameters that have a gradient here, in registration order.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const BufferPlan& plan() const { return plan_; }
  const BufferLayout& layout() const { return plan_.layout; }
  Tensor& grads() { return grads_; }
  const Tensor& grads() const { return grads_; }
  /// Weights in the same layout; undefined unless asked for.
  Tensor& params() { return params_; }

  /// Start and end of a step for all parameters (tape.md): first writes overwrite, unused gradients become zero.
  void begin_step();
  void finish_step(const Context& ctx);

 private:
  void move_weights(const Context& ctx);

  BufferPlan plan_;
  std::vector<Parameter*> parameters_;
  Tensor grads_, params_;
};

}  // namespace megatron
