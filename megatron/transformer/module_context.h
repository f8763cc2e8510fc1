// What every layer is built from.
#pragma once

#include <string>
#include <string_view>

#include "megatron/comm/process_group_collection.h"
#include "megatron/core/context.h"
#include "megatron/tensor_parallel/comm_overlap.h"
#include "megatron/transformer/transformer_config.h"

namespace megatron {

/// Passed down while a model is built; `path` names the layer, as Megatron Core names it.
struct ModuleContext {
  const Context& ctx;
  const TransformerConfig& config;
  const ProcessGroupCollection& groups;
  std::string path;
  bool sequence_parallel = false;
  TensorCommOverlap overlap = {};

  ModuleContext at(std::string_view child) const {
    ModuleContext inner = *this;
    inner.path += inner.path.empty() ? std::string(child) : "." + std::string(child);
    return inner;
  }
  /// Standard deviation of layers that write into the residual stream: GPT-2's 1/sqrt(2 layers).
  double output_init_std() const;
};

}  // namespace megatron
