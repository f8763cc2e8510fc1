// The layers of GPT. Megatron Core: core/models/gpt/gpt_layer_specs.py.
#pragma once

#include "megatron/transformer/decoder_layer.h"

namespace megatron {

/// Makes TransformerLayers of the config.
LayerSpec gpt_layer_spec();

}  // namespace megatron
