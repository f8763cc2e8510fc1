// The family of Phi-3 and Phi-4.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family phi3_family();

}  // namespace megatron::hugging_face
