// The family of GPTs, which are decoders over tokens.
#pragma once

#include "megatron/models/gpt/gpt_layer_spec.h"
#include "megatron/models/model_family.h"

namespace megatron {

/// Its layers are TransformerLayers of the config.
ModelFamily gpt_family();
/// Its layers are those of a program. Example: examples/parallel_block.cpp.
ModelFamily gpt_family(const LayerSpec& layer_spec);

}  // namespace megatron
