#include "megatron/models/gpt/gpt_mtp.h"

#include <fmt/core.h>

#include "megatron/kernels/elementwise.h"
#include "megatron/models/gpt/gpt_stage.h"

namespace megatron {
namespace {

std::string path_of(size_t layer) { return fmt::format("mtp.layers.{}", layer); }

}  // namespace

std::string mtp_loss_name(int64_t depth) { return fmt::format("mtp_{} loss", depth); }
std::string mtp_hidden_name(int64_t depth) { return fmt::format("mtp_{} hidden", depth); }

Tensor shifted_rows(const Context& ctx, const Tensor& x, int64_t num) {
  const int64_t s = x.size(0);
  require<ShapeError>(num <= s, "[multi-token prediction] {} positions cannot be shifted by {}. Give longer sequences.",
                      s, num);
  Tensor y = ctx.empty("mtp.shifted", x.shape(), x.dtype(), MemoryUse::kData);
  const Tensor from = x.slice(0, num, s - num);
  Tensor to = y.slice(0, 0, s - num), rest = y.slice(0, s - num, num);
  launch(ctx, {.name = "copy"}, [&](auto& stream) {
    kernels::copy(stream, {.x = from.view(), .y = to.view()});
    kernels::fill(stream, {.y = rest.view(), .value = 0});
  });
  return y;
}

std::string further_name(std::string_view tensor, int64_t num) { return fmt::format("{}+{}", tensor, num); }
std::string whole_name(std::string_view tensor) { return fmt::format("{} of all ranks", tensor); }

Tensor further_values(const Context& ctx, const Batch& batch, std::string_view name, int64_t depth) {
  Tensor given = batch.optional_tensor(further_name(name, depth));
  return given.defined() ? given : shifted_rows(ctx, batch.tensor(name), depth);
}

GptMtp::GptMtp(const ModuleContext& context, const LayerSpec& layer_spec, const GptEmbedding& embedding)
    : embedding_(embedding) {
  layers_.resize(static_cast<size_t>(context.config.mtp.num_layers));
  for (size_t i = 0; i < layers_.size(); ++i)
    register_module(layers_[i], std::make_unique<MultiTokenPredictionLayer>(context.at(path_of(i)), layer_spec));
}

Tensor GptMtp::forward(Context& ctx, const Payload& in, size_t layer, const Batch& batch,
                       const LayerInputs& inputs) const {
  const auto depth = static_cast<int64_t>(layer) + 1;
  const Tensor tokens = further_values(ctx, batch, gpt_batch::kTokens, depth);
  const Tensor embedded =
      embedding_.forward(ctx, tokens, batch.layout(gpt_batch::kTokens), path_of(layer) + ".embedding.dropout");
  const Tensor& hidden = at(in, layer == 0 ? "hidden" : mtp_hidden_name(depth - 1));
  LayerInputs own = inputs;
  own.mtp_depth = depth;
  return layers_[layer]->forward(ctx, hidden, embedded, own);
}

std::vector<MoeLayer*> GptMtp::experts() const {
  std::vector<MoeLayer*> experts;
  for (const auto& layer : layers_)
    if (MoeLayer* own = layer->experts()) experts.push_back(own);
  return experts;
}

Chunk GptMtp::segments(const Batches& batches, const std::function<LayerInputs(const Batch&)>& inputs) const {
  Chunk chunk;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    Segment segment{.name = fmt::format("mtp {}", layer + 1), .parameters = layers_[layer]->parameters()};
    for (Parameter* parameter : embedding_.parameters()) segment.parameters.push_back(parameter);
    segment.forward = [this, batches, inputs, layer](Context& ctx, const Payload& in, int m) {
      const Batch& batch = batches(m);
      Payload out = in;
      out.push_back({mtp_hidden_name(static_cast<int64_t>(layer) + 1), forward(ctx, in, layer, batch, inputs(batch))});
      return out;
    };
    chunk.push_back(std::move(segment));
  }
  return chunk;
}

}  // namespace megatron
