// Multi-latent attention. Megatron Core: core/transformer/multi_latent_attention.py.
#pragma once

#include <memory>

#include "megatron/ops/latent_heads.h"
#include "megatron/tensor_parallel/layers.h"
#include "megatron/transformer/attention.h"
#include "megatron/transformer/dot_product_attention.h"
#include "megatron/transformer/norm.h"

namespace megatron {

class KeyValueCache;

/// Attention whose keys and values come from one latent vector a token, and whose queries may come from another.
/// Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1. The projections to the latents are whole on every
/// tensor-parallel rank, those from the latents to the heads are cut by heads.
/// In generation a layer keeps the latent vectors, and reads them by the absorbed form (ops/absorbed_heads.h); on CUDA,
/// whose attention takes heads of at most 256 elements, it keeps keys and values where latent vectors are wider.
class MultiLatentAttention : public Attention {
 public:
  /// @param layer_number from 1: chooses the window where the config says "every N-th layer".
  MultiLatentAttention(const ModuleContext& context, int64_t layer_number);
  /// @param x [s, b, h] ([s/tp, b, h] under sequence parallelism). inputs.rope is that of make_rope_table().
  BlockOutput forward(Context& ctx, const Tensor& x, const LayerInputs& inputs) const override;
  std::unique_ptr<LayerState> make_state(const Context& ctx, const LayerStateSizes& sizes) const override;
  /// The part of keys that rotates is shared by all heads and stays: that of the queries takes the whole factor.
  std::vector<ScaledRows> clipped_rows(std::span<const double> max_logits, const QkClip& clip) const override;

 private:
  void register_projections(const ModuleContext& context);
  /// The tensors that keys and values are computed from.
  struct Latents {
    Tensor latent;  // [s, b, kv_lora_rank] ([s/tp, b, ..] under sequence parallelism), normalized
    Tensor shared;  // [s, b, rotated], before its rotation
  };
  Tensor query_of(Context& ctx, const Tensor& x, const LayerInputs& inputs) const;
  /// Queries from their latent vectors, or from the input of the layer if they have none.
  Tensor queries(Context& ctx, const Tensor& latent, const RopeTable& rope, const SequenceLayout& layout) const;
  KeyValue keys_and_values(Context& ctx, const Latents& latents, const RopeTable& rope,
                           const SequenceLayout& layout) const;
  /// Lets attention save the latents instead of keys and values.
  void recompute_when_saved(Context& ctx, const KeyValue& heads, const Latents& latents,
                            const LayerInputs& inputs) const;
  Latents latents_of(Context& ctx, const Tensor& x) const;
  /// Keys and values before their rotation.
  Tensor up_projected(Context& ctx, const Tensor& latent) const;
  /// Attention over the keys and values of the new rows, and of the cache before them if there is one.
  Tensor attend(Context& ctx, const Tensor& query, const Latents& latents, const LayerInputs& inputs,
                KeyValueCache* cache) const;
  /// Attention over the latent vectors of a cache that has rows already.
  Tensor attend_to_latents(Context& ctx, const Tensor& query, const Tensor& tokens, const LayerInputs& inputs) const;
  Tensor attend_cached(Context& ctx, const Tensor& query, const Latents& latents, const LayerInputs& inputs) const;
  /// True if the device's attention takes heads as wide as a latent vector.
  bool caches_latents(const Context& ctx) const;

  int64_t num_heads_;  // of this rank
  LatentHeadSizes sizes_;
  int64_t kv_lora_rank_;
  DType dtype_;
  ProcessGroup tensor_group_;
  bool sequence_parallel_, recomputes_up_projections_;
  OffloadChoice offload_of_qkv_linear_, offload_of_attn_proj_;
  std::unique_ptr<DotProductAttention> core_attention_;
  std::unique_ptr<RowParallelLinear> linear_proj_;
  std::unique_ptr<ColumnParallelLinear> linear_q_proj_;   // null with a latent of the queries
  std::unique_ptr<DuplicatedLinear> linear_q_down_proj_;  // null without, as the next
  std::unique_ptr<ColumnParallelLinear> linear_q_up_proj_;
  std::unique_ptr<DuplicatedLinear> linear_kv_down_proj_;
  std::unique_ptr<ColumnParallelLinear> linear_kv_up_proj_;
  std::unique_ptr<Norm> q_layernorm_, kv_layernorm_;  // of the latents; null without qk_layernorm
};

}  // namespace megatron
