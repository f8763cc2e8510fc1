// LayerNorm or RMSNorm, as the config says.
#pragma once

#include <memory>

#include "megatron/autograd/module.h"
#include "megatron/ops/layer_norm.h"
#include "megatron/transformer/module_context.h"

namespace megatron {

/// A tensor-parallel rank normalizes: the rows of the residual stream (a part of them under sequence parallelism),
/// its own attention heads, the heads of all ranks together, or the latent vectors of queries, which have the rows of
/// the residual stream. Decides whether its gradient is a part of the whole and which flag decays its weight.
enum class NormPlace { kResidualStream, kAttentionHeads, kAllHeads, kQueryLatent };

/// Weight and, for LayerNorm, bias of size `size`; whole on every tensor-parallel rank.
class Norm : public Module {
 public:
  Norm(const ModuleContext& context, int64_t size, NormPlace place);
  /// @param x [..., size].  @return the same shape in the dtype of the model.
  Tensor forward(Context& ctx, const Tensor& x) const;

 private:
  Normalization kind_;
  NormOptions options_;
  std::unique_ptr<Parameter> weight_, bias_;
};

}  // namespace megatron
