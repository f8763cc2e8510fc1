// Names of settings in other programs, for "did you mean".
#pragma once

#include <span>

#include "megatron/base/flag_synonym.h"

namespace megatron {

/// For flags of all commands. No flag that is rejected is among the suggestions.
std::span<const FlagSynonym> flag_synonyms();

}  // namespace megatron
