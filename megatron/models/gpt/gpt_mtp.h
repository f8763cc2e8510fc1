// The layers of a GPT that predict further tokens, and their losses. Megatron Core:
// core/transformer/multi_token_prediction.py, MultiTokenPredictionBlock.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/autograd/segment.h"
#include "megatron/models/batch.h"
#include "megatron/models/gpt/gpt_embedding.h"
#include "megatron/transformer/multi_token_prediction.h"

namespace megatron {

/// "mtp_1 loss": Megatron's name in the log of the loss at depth `depth`, from 1; also that of the accumulator of the
/// means of micro-batches.
std::string mtp_loss_name(int64_t depth);
/// "mtp_1 hidden": the name of a depth's hidden states when they cross a border.
std::string mtp_hidden_name(int64_t depth);

/// The rows from row `num` on, and zeros behind them: the tokens, labels or mask of depth `num`. @param x [s, b], any
/// strides. @throw ShapeError if there are fewer rows.
Tensor shifted_rows(const Context& ctx, const Tensor& x, int64_t num);

/// "labels+1": the name of a tensor's values `num` positions further in their samples.
std::string further_name(std::string_view tensor, int64_t num);
/// "loss_mask of all ranks": the values of whole samples, where a batch has a rank's part of them.
std::string whole_name(std::string_view tensor);
/// The values of one of the batch's tensors that depth `depth` takes: those of further_name(), which a batch has where
/// ranks share samples, else shifted_rows().
Tensor further_values(const Context& ctx, const Batch& batch, std::string_view name, int64_t depth);

/// The layers of all depths, which are in one stage.
class GptMtp : public Module {
 public:
  /// @param context  of the model. @param embedding  of this rank.
  GptMtp(const ModuleContext& context, const LayerSpec& layer_spec, const GptEmbedding& embedding);
  /// A segment for each depth. Each takes {"hidden", hidden states of the depths so far} and adds its own.
  /// @param inputs  of the layers, for a batch.
  Chunk segments(const Batches& batches, const std::function<LayerInputs(const Batch&)>& inputs) const;
  /// Returns those of the depths that have some.
  std::vector<MoeLayer*> experts() const;

 private:
  Tensor forward(Context& ctx, const Payload& in, size_t layer, const Batch& batch, const LayerInputs& inputs) const;

  const GptEmbedding& embedding_;
  std::vector<std::unique_ptr<MultiTokenPredictionLayer>> layers_;
};

}  // namespace megatron
