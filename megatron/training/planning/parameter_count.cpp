#include "megatron/training/planning/parameter_count.h"

#include <fmt/core.h>

#include "megatron/core/device_step_state.h"

namespace megatron {

ParameterCount count_parameters(const Model& model, const ProcessGroupCollection& groups) {
  ParameterCount count;
  for (const Parameter* parameter : model.parameters()) {
    if (!parameter->is_trainable()) continue;  // such as the expert bias, a buffer in Megatron
    count.own += parameter->shape().num_elements();
    if (parameter->options().tied.is_first()) count.total += parameter->options().shard.global_shape.num_elements();
  }
  groups.pp.all_reduce({&count.total, DType::kInt64, {1}, {1}}, ReduceOp::kSum, {.site = "number of parameters"})
      .wait();
  return count;
}

int64_t num_model_parameters(const PretrainConfig& config) {
  Device device(DeviceKind::kMeta, {.capacity_bytes = int64_t{1} << 46});  // of any size: nothing is allocated
  DeviceStepState step(device);
  const Context ctx{.device = device, .step = step.get(), .key = {}};
  const ProcessGroupCollection groups = ProcessGroupCollection::single();
  const auto model = config.family.make_model({.ctx = ctx, .config = config.transformer, .groups = groups, .path = ""},
                                              whole_layout(config.transformer), config.family.options);
  return count_parameters(*model, groups).total;
}

std::string parameter_count_text(const ParameterCount& count, const ProcessGroupCollection& groups) {
  return fmt::format(
      " > number of parameters on (tensor, pipeline) model parallel rank ({}, {}): {}\n"
      "number of parameters of the whole model: {}",
      groups.tp.rank(), groups.pp.rank(), count.own, count.total);
}

}  // namespace megatron
