// The families of Qwen with experts.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family qwen2_moe_family();
Family qwen3_moe_family();

}  // namespace megatron::hugging_face
