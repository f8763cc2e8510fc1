// GPT-OSS.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family gpt_oss_family();

}  // namespace megatron::hugging_face
