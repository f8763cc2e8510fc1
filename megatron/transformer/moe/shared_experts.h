// Experts that see every token. Megatron Core: core/transformer/moe/shared_experts.py.
#pragma once

#include <memory>

#include "megatron/transformer/mlp.h"
#include "megatron/transformer/moe/moe_config.h"

namespace megatron {

/// One MLP without biases, as wide as all shared experts together. With a gate its output is multiplied by sigmoid(x
/// w).
class SharedExperts : public Module {
 public:
  /// @throw ConfigError with add_bias_linear, as Megatron.
  SharedExperts(const ModuleContext& context, const MoeConfig& config);
  /// @param x [s, b, h]
  Tensor forward(Context& ctx, const Tensor& x) const;

 private:
  std::unique_ptr<Parameter> gate_weight_;
  std::unique_ptr<Mlp> mlp_;
};

}  // namespace megatron
