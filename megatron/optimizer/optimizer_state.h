// The state that an optimizer keeps of the parameters that it steps.
#pragma once

#include <vector>

#include "megatron/distributed/param_and_grad_buffer.h"
#include "megatron/optimizer/param_scheduler.h"

namespace megatron {

/// Parameters that share learning rate and weight decay. Megatron's groups: those that decay, then those that do not
/// (biases and 1-D weights); each again for a decoupled learning rate, if requested.
struct ParamGroup {
  ParamGroupSchedule schedule;
  std::vector<size_t> members;  // indices into Optimizer::states()
};

/// The optimizer state of a range of a parameter's shard: of all of it, or with the distributed optimizer of the
/// part that lies in this rank's shard of a bucket. Tensors have the parameter's shape if the range is whole, else they
/// are vectors of end - begin elements. `main` is the weight itself where that is fp32 or fp64, and with bf16 main
/// parameters. All but weights lie in page-locked host memory where the host steps the range (HostStep).
struct OptimizerState : FlatRange {
  Tensor main;        // fp32 (fp64, bf16): what is stepped. Undefined where `remainder` is
  Tensor remainder;   // uint8 [elements, 2]: what the bf16 weight lacks of it (kernels/main_params.h)
  Tensor exp_avg;     // Adam's first moment, SGD's momentum buffer (undefined without momentum)
  Tensor exp_avg_sq;  // Adam's second moment
  bool is_on_host = false;

  /// Says whether there is no other copy of the weights.
  bool steps_weights() const { return main.defined() && main.dtype() == parameter->dtype(); }
  /// Says whether those are bf16, and so rounded at random.
  bool rounds_weights() const { return steps_weights() && main.dtype() == DType::kBFloat16; }
};

}  // namespace megatron
