#include "megatron/transformer/module_context.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

namespace megatron {

ModuleContext ModuleContext::at(std::string_view child) const {
  ModuleContext inner = *this;
  inner.path += inner.path.empty() ? std::string(child) : "." + std::string(child);
  inner.stored = stored.with(std::string(child) + ".");
  return inner;
}

ModuleContext ModuleContext::layer(std::string_view layers, int64_t number) const {
  ModuleContext inner = at(fmt::format("{}.{}", layers, number));
  inner.stored = {stored.key + std::string(layers) + ".", number};
  return inner;
}

ModuleContext ModuleContext::norm_before(std::string_view norm, std::string_view linear) const {
  ModuleContext inner = at(norm);
  inner.stored = stored.with(std::string(linear) + ".layer_norm_");
  return inner;
}

ModuleContext ModuleContext::norm_behind(std::string_view norm, std::string_view linear) const {
  ModuleContext inner = at(norm);
  inner.stored = stored.with(std::string(linear) + ".post_layernorm.");
  return inner;
}

ParameterOptions ModuleContext::parameter(std::string_view name, ShardSpec shard) const {
  return {.name = path + "." + std::string(name),
          .shard = std::move(shard),
          .dtype = config.params_dtype,
          .place = groups.shard_place(),
          .stored = stored.with(name)};
}

ShardSpec ModuleContext::whole(const Shape& shape) const {
  ShardSpec shard = ShardSpec::whole(shape);
  if (sequence_parallel && groups.tp.size() > 1) shard.grad_reduction = GradReduction::kSumOverTensor;
  return shard;
}

double ModuleContext::output_init_std() const {
  return config.init_method_std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
}

}  // namespace megatron
