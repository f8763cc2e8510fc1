// The family of GPT and its like: decoders over tokens.
#pragma once

#include "megatron/models/gpt/gpt_layer_spec.h"
#include "megatron/models/model_family.h"

namespace megatron {

/// With TransformerLayer, as the config says.
ModelFamily gpt_family();
/// With layers of a program's own. Example: examples/parallel_block.cpp.
ModelFamily gpt_family(const LayerSpec& layer_spec);

}  // namespace megatron
