// The family of GPT-2.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family gpt2_family();

}  // namespace megatron::hugging_face
