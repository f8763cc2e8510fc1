// The tokenizer flags that commands share.
#pragma once

#include "megatron/base/field.h"
#include "megatron/base/flag_parser.h"
#include "megatron/tokenizers/tokenizer_factory.h"

namespace megatron {

/// Adds the group "Tokenizer". `tokenizer` must stay in place.
void describe_tokenizer_flags(FieldTable& table, TokenizerOptions& tokenizer);

/// Megatron's flags of tokenizers that have no effect here, with the reasons.
RefusedFlags refused_tokenizer_flags();

}  // namespace megatron
