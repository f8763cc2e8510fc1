// Computes the experts one after the other, as the reference for GroupedMlp. Megatron Core:
// core/transformer/moe/experts.py, SequentialMLP.
#pragma once

#include <memory>
#include <vector>

#include "megatron/autograd/module.h"
#include "megatron/ops/router.h"
#include "megatron/ops/weighted_rows.h"
#include "megatron/transformer/module_context.h"
#include "megatron/transformer/moe/moe_config.h"

namespace megatron {

/// Each expert takes its own tokens through linear layers of its own, "experts.local_experts.0.linear_fc1.weight"; the
/// results are added. Memory is planned as if every token went to every expert. Ranks share the experts as those of
/// GroupedMlp; the number in a name is that among all experts.
class SequentialMlp : public Module {
 public:
  /// @throw ConfigError as GroupedMlp.
  SequentialMlp(const ModuleContext& context, const MoeConfig& config);
  /// @param x [t, h]. @param routing of the experts of this rank. @return [t, h], the sum of what they give.
  Tensor forward(Context& ctx, const Tensor& x, const Routing& routing) const;

 private:
  struct Expert {
    std::unique_ptr<Parameter> fc1_weight, fc1_bias, fc2_weight, fc2_bias;
  };
  Tensor expert_forward(Context& ctx, const Tensor& x, const Routing& routing, int64_t index) const;

  ActivationChoice activation_;
  bool apply_probs_on_input_, recomputes_activation_;
  OffloadChoice offload_of_fc1_, offload_of_activation_;
  std::vector<Expert> experts_;
};

}  // namespace megatron
