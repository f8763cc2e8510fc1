// The family of StarCoder 2.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family starcoder2_family();

}  // namespace megatron::hugging_face
