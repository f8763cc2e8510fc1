// Self attention with grouped queries. Megatron Core: core/transformer/attention.py.
#pragma once

#include <memory>

#include "megatron/ops/attention.h"
#include "megatron/ops/split_qkv.h"
#include "megatron/tensor_parallel/layers.h"
#include "megatron/transformer/decoder_layer.h"
#include "megatron/transformer/key_value_cache.h"
#include "megatron/transformer/mlp.h"
#include "megatron/transformer/norm.h"

namespace megatron {

class SelfAttention : public Module {
 public:
  /// @param layer_number from 1: chooses window and rotation where the config says "every N-th layer".
  SelfAttention(const ModuleContext& context, int64_t layer_number);
  /// @param x [s, b, h] ([s/tp, b, h] under sequence parallelism)
  BlockOutput forward(Context& ctx, const Tensor& x, const LayerInputs& inputs) const;

  /// Room for the keys and values of this rank's heads. forward() appends to it where LayerInputs::state is given.
  std::unique_ptr<KeyValueCache> make_state(const Context& ctx, const LayerStateSizes& sizes) const;

 private:
  Tensor normalized(Context& ctx, const Tensor& heads, const Norm* norm) const;
  /// What attention takes, of the projection. `are_direct`: views of it.
  QueryKeyValue heads_of(Context& ctx, const Tensor& mixed, const LayerInputs& inputs, bool are_direct) const;
  Tensor core_attention(Context& ctx, const QueryKeyValue& x, const LayerInputs& inputs, bool packs_gradients) const;

  int64_t num_heads_, num_groups_, head_size_;  // of this rank
  DType dtype_;
  bool qk_l2_norm_, uses_rope_, recomputes_core_;
  double epsilon_;
  std::string path_;
  AttentionOptions options_;
  std::unique_ptr<Parameter> softmax_offset_;
  std::unique_ptr<RowParallelLinear> linear_proj_;
  std::unique_ptr<ColumnParallelLinear> linear_qkv_;
  std::unique_ptr<Norm> q_layernorm_, k_layernorm_;
};

}  // namespace megatron
