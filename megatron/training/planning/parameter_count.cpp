#include "megatron/training/planning/parameter_count.h"

#include <fmt/core.h>

#include "megatron/training/planning/whole_model.h"

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
  int64_t total = 0;
  with_whole_model(
      config, [&](const Model& model) { total = count_parameters(model, ProcessGroupCollection::single()).total; });
  return total;
}

std::string parameter_count_text(const ParameterCount& count, const ProcessGroupCollection& groups) {
  return fmt::format(
      " > number of parameters on (tensor, pipeline) model parallel rank ({}, {}): {}\n"
      "number of parameters of the whole model: {}",
      groups.tp.rank(), groups.pp.rank(), count.own, count.total);
}

}  // namespace megatron
