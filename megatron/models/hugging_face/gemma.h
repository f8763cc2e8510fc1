// The families of Gemma 2 and of Gemma 3's text models.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family gemma2_family();
Family gemma3_text_family();

}  // namespace megatron::hugging_face
