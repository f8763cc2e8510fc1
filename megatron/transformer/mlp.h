// The feed-forward part of a layer. Megatron Core: core/transformer/mlp.py.
#pragma once

#include <memory>

#include "megatron/ops/activation.h"
#include "megatron/tensor_parallel/layers.h"
#include "megatron/transformer/module_context.h"

namespace megatron {

/// The result of a block of a layer: its output without the bias of its last linear layer, which is added together with
/// dropout and residual.
struct BlockOutput {
  Tensor output;
  Parameter* bias = nullptr;
};

/// The kernels' name of the activation.
kernels::Activation kernel_of(ActivationFunc function);

/// A feed-forward; the defaults of a model are those of its config.
struct MlpOptions {
  int64_t ffn_hidden_size = 0;
  bool gated_linear_unit = false;
  ActivationFunc activation_func = ActivationFunc::kGelu;
};

/// fc1, activation (gated or not), fc2.
class Mlp : public Module {
 public:
  /// Takes its options from the config of the model.
  explicit Mlp(const ModuleContext& context);
  Mlp(const ModuleContext& context, const MlpOptions& options);
  /// @param x [s, b, h] ([s/tp, b, h] under sequence parallelism)
  BlockOutput forward(Context& ctx, const Tensor& x) const;
  Parameter* output_bias() const { return linear_fc2_->bias(); }

 private:
  bool is_gated_;
  kernels::Activation activation_;
  kernels::GateOptions gate_;
  std::unique_ptr<ColumnParallelLinear> linear_fc1_;
  std::unique_ptr<RowParallelLinear> linear_fc2_;
};

}  // namespace megatron
