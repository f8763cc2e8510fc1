// The family of Mixtral.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family mixtral_family();

}  // namespace megatron::hugging_face
