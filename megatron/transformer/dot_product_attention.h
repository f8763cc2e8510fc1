// The core of attention, between the projections: softmax(scale q k^T) v. Megatron Core:
// core/transformer/dot_product_attention.py.
#pragma once

#include <memory>

#include "megatron/context_parallel/context_attention.h"
#include "megatron/transformer/decoder_layer.h"

namespace megatron {

/// Computes scores, mask, softmax and values of this rank's heads, with the windows, sinks, dropout and recompute of
/// the config.
class DotProductAttention : public Module {
 public:
  /// @param layer_number from 1: chooses the window where the config says "every N-th layer".
  /// @param scale  of the scores
  DotProductAttention(const ModuleContext& context, int64_t layer_number, double scale);
  /// @param query [s, b, n, d]. @param key [s_k, b, g, d]. @param value [s_k, b, g, dv].
  /// @param packs_gradients  as AttentionOptions::packs_gradients
  /// @return [s, b, n * dv]. Context-parallel ranks have their rows of all of these.
  Tensor forward(Context& ctx, const Tensor& query, const Tensor& key, const Tensor& value, const LayerInputs& inputs,
                 bool packs_gradients) const;
  /// True if context-parallel ranks share sequences: then queries, keys and values are copies.
  bool shares_sequences() const { return context_.is_shared(); }

 private:
  /// The step notes the largest logits of the layer here; undefined if it does not.
  Tensor max_logits(const Context& ctx, const LayerInputs& inputs) const;

  int64_t layer_number_, num_heads_;  // heads of all ranks
  bool is_recomputed_;
  OffloadChoice offload_;
  std::string path_;
  AttentionOptions options_;
  ContextAttention context_;
  std::unique_ptr<Parameter> softmax_offset_;
};

/// Query heads of a rank. @throw ConfigError if the ranks have no equal numbers.
int64_t num_heads_of_rank(const ModuleContext& context);

}  // namespace megatron
