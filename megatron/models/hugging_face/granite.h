// The family of Granite 3.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family granite_family();

}  // namespace megatron::hugging_face
