// The family of OLMo 2.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family olmo2_family();

}  // namespace megatron::hugging_face
