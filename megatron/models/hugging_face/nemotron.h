// The family of Nemotron-4 and Minitron.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

Family nemotron_family();

}  // namespace megatron::hugging_face
