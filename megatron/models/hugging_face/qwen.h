// The families of Qwen.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family qwen2_family();
Family qwen3_family();

/// layer_types says which layers have the sliding window; older files say it by max_window_layers.
/// @param num_layers  where num_hidden_layers is missing
void derive_qwen_windows(ConfigReader& config, Json& arguments, int64_t num_layers);

/// The inverse of derive_decoder and derive_qwen_windows.
void restore_qwen(const Json& arguments, Json& config);

}  // namespace megatron::hugging_face
