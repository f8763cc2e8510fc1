// The families of Qwen.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family qwen2_family();
Family qwen3_family();

}  // namespace megatron::hugging_face
