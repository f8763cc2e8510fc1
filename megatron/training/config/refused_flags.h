// Megatron's flags that this version refuses, each with the reason.
#pragma once

#include "megatron/base/flag_parser.h"

namespace megatron {

/// Every flag of Megatron's parser that describe() does not have.
RefusedFlags refused_flags();

}  // namespace megatron
