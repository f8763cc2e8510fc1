#include "megatron/models/gpt/gpt_layer_spec.h"

#include "megatron/transformer/transformer_layer.h"

namespace megatron {

LayerSpec gpt_layer_spec() {
  return [](const ModuleContext& context, int64_t layer_number) {
    return std::make_unique<TransformerLayer>(context, layer_number);
  };
}

}  // namespace megatron
