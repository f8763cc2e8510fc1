#include "megatron/transformer/decoder_layer.h"

namespace megatron {

std::vector<LayerPart> DecoderLayer::parts() const {
  return {{.name = "layer",
           .parameters = parameters(),
           .forward = [this](Context& ctx, const Payload& in, const LayerInputs& inputs) {
             return Payload{{"hidden", forward(ctx, at(in, "hidden"), inputs)}};
           }}};
}

}  // namespace megatron
