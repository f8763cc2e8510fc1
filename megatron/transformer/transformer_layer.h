// One layer of a decoder: attention and feed-forward, dense or of experts, around a residual stream.
#pragma once

#include <functional>
#include <memory>

#include "megatron/transformer/attention.h"
#include "megatron/transformer/moe/moe_layer.h"
#include "megatron/transformer/norm.h"

namespace megatron {

/// x + attention(norm(x)), then x + mlp(norm(x)), each with dropout before the sum; one of them or both, as the plan of
/// the layers says. With norms behind the blocks x + norm(attention(norm(x))), or without those in front of them.
/// Megatron Core: core/transformer/transformer_layer.py.
class TransformerLayer : public DecoderLayer {
 public:
  /// @param layer_number from 1, global. @throw NotSupported for a kind of layer that this version cannot build.
  TransformerLayer(const ModuleContext& context, int64_t layer_number);
  Tensor forward(Context& ctx, const Tensor& hidden, const LayerInputs& inputs) const override;
  /// "self_attention" and "mlp", those that are there, each with its norm and its residual connection.
  std::vector<LayerPart> parts() const override;
  std::unique_ptr<LayerState> make_state(const Context& ctx, const LayerStateSizes& sizes) const override;
  MoeLayer* experts() const override { return moe_.get(); }
  const Attention* attention() const override { return self_attention_.get(); }

 private:
  Tensor attention_block(Context& ctx, const Tensor& hidden, const LayerInputs& inputs) const;
  Tensor feed_forward_block(Context& ctx, const Tensor& hidden, const LayerInputs& inputs) const;
  using Block = std::function<BlockOutput(Context&, const Tensor& normed)>;
  /// The norms around a block; each may be null.
  struct BlockNorms {
    const Norm *before, *behind;
    OffloadChoice offload;  // of what the first one saves
  };
  /// residual + dropout(multiplier * norm(block(norm(hidden))) + bias).
  Tensor residual_block(Context& ctx, const Tensor& hidden, const BlockNorms& norms, const Block& block,
                        std::string_view path, const LayerInputs& inputs) const;
  Tensor normalized(Context& ctx, const BlockNorms& norms, const Tensor& hidden) const;
  BlockOutput feed_forward(Context& ctx, const Tensor& x, const LayerInputs& inputs) const;
  Tensor expert_forward(Context& ctx, const Tensor& x, const LayerInputs& inputs) const;
  bool has_feed_forward() const { return mlp_ || moe_; }

  int64_t layer_number_;
  double hidden_dropout_, residual_multiplier_;
  DType dtype_;
  OffloadChoice offload_of_attn_norm_, offload_of_mlp_norm_;
  bool recomputes_norms_, recomputes_mlp_, recomputes_moe_;
  std::string attention_path_, mlp_path_;
  std::unique_ptr<Norm> input_layernorm_;  // null without attention, as the next, or without norms in front of blocks
  std::unique_ptr<Attention> self_attention_;
  std::unique_ptr<Norm> post_self_attn_layernorm_;  // null without norms behind blocks
  std::unique_ptr<Norm> pre_mlp_layernorm_;         // null without feed-forward, or as the first norm
  std::unique_ptr<Mlp> mlp_;                        // at most one of both
  std::unique_ptr<MoeLayer> moe_;
  std::unique_ptr<Norm> post_mlp_layernorm_;
};

}  // namespace megatron
