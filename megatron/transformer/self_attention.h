// Self attention with grouped queries. Megatron Core: core/transformer/attention.py.
#pragma once

#include <memory>

#include "megatron/ops/split_qkv.h"
#include "megatron/tensor_parallel/layers.h"
#include "megatron/transformer/attention.h"
#include "megatron/transformer/dot_product_attention.h"
#include "megatron/transformer/norm.h"

namespace megatron {

class SelfAttention : public Attention {
 public:
  /// @param layer_number from 1: chooses window and rotation where the config says "every N-th layer".
  SelfAttention(const ModuleContext& context, int64_t layer_number);
  BlockOutput forward(Context& ctx, const Tensor& x, const LayerInputs& inputs) const override;
  std::unique_ptr<LayerState> make_state(const Context& ctx, const LayerStateSizes& sizes) const override;
  /// Heads that share a key are scaled alike, by the largest of their logits. Biases stay.
  std::vector<ScaledRows> clipped_rows(std::span<const double> max_logits, const QkClip& clip) const override;

 private:
  Tensor normalized(Context& ctx, const Tensor& heads, const Norm* norm) const;
  /// Normalises over all heads of a token, those of other tensor-parallel ranks included.
  Tensor normalized_across_heads(Context& ctx, const Tensor& heads, const Norm& norm) const;
  /// Queries, keys, values and gates of the projection. With `are_direct` they are views of it.
  /// Queries, keys and values of this rank in the order of the fused projection.
  Tensor mixed_of(Context& ctx, const Tensor& x) const;
  QueryKeyValue heads_of(Context& ctx, const Tensor& mixed, const LayerInputs& inputs, bool are_direct) const;

  MixedHeads mixed_heads() const {
    return {.num_groups = num_groups_, .num_heads = num_heads_, .has_gates = has_gate_};
  }

  int64_t num_heads_, num_groups_, head_size_;  // of this rank
  int64_t first_head_, heads_per_group_;        // in the whole layer
  DType dtype_;
  bool has_gate_, qk_l2_norm_, uses_rope_, norms_across_heads_;
  ProcessGroup tensor_group_;
  double epsilon_;
  OffloadChoice offload_of_qkv_linear_, offload_of_attn_proj_;
  std::unique_ptr<DotProductAttention> core_attention_;
  std::unique_ptr<RowParallelLinear> linear_proj_;
  std::unique_ptr<ColumnParallelLinear> linear_qkv_;
  std::unique_ptr<Norm> q_layernorm_, k_layernorm_;
};

}  // namespace megatron
