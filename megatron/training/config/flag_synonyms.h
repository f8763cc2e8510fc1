// The names of pretrain_gpt's settings in other programs, for "did you mean" of commands that share flags with it.
#pragma once

#include <vector>

#include "megatron/base/flag_synonym.h"

namespace megatron {

/// Field::synonyms of all its fields. No flag that is rejected is among the suggestions.
std::vector<FlagSynonym> flag_synonyms();

}  // namespace megatron
