#include "megatron/training/planning/parameter_count.h"

#include <fmt/core.h>

#include <algorithm>

namespace megatron {

ParameterCount count_parameters(const Model& model, const ProcessGroupCollection& groups) {
  ParameterCount count;
  const std::vector<Parameter*> ties = model.ties();
  for (const Parameter* parameter : model.parameters()) {
    count.own += parameter->shape().num_elements();
    const bool is_copy = groups.pp.rank() > 0 && std::ranges::find(ties, parameter) != ties.end();
    if (!is_copy) count.total += parameter->options().shard.global_shape.num_elements();
  }
  groups.pp.all_reduce({&count.total, DType::kInt64, {1}, {1}}, ReduceOp::kSum, {.site = "number of parameters"})
      .wait();
  return count;
}

std::string parameter_count_text(const ParameterCount& count, const ProcessGroupCollection& groups) {
  return fmt::format(
      " > number of parameters on (tensor, pipeline) model parallel rank ({}, {}): {}\n"
      "number of parameters of the whole model: {}",
      groups.tp.rank(), groups.pp.rank(), count.own, count.total);
}

}  // namespace megatron
