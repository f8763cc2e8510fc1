// DeepSeek V2 and V3.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family deepseek_v2_family();
Family deepseek_v3_family();

}  // namespace megatron::hugging_face
