// The tokenizer flags that commands share.
#pragma once

#include <string>
#include <vector>

#include "megatron/base/field.h"
#include "megatron/base/flag_parser.h"
#include "megatron/tokenizers/tokenizer_factory.h"

namespace megatron {

/// Adds the group "Tokenizer". `tokenizer` must stay in place.
void describe_tokenizer_flags(FieldTable& table, TokenizerOptions& tokenizer);

/// Megatron's flags of tokenizers that are rejected, with the reasons.
RefusedFlags refused_tokenizer_flags();

/// A line for each given flag that has no effect here, with the reason.
std::vector<std::string> notes_without_effect(const FieldTable& table, const GivenFields& given);

}  // namespace megatron
