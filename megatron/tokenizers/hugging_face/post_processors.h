// Post-processors of a tokenizer.json: the ids around those of a text.
#pragma once

#include <string>
#include <vector>

#include "megatron/tokenizers/hugging_face/json_fields.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron::hugging_face {

/// The ids before and behind those of one text, such as BOS and EOS.
struct SpecialTokenFrame {
  std::vector<TokenId> prefix, suffix;
};

/// @throw NotSupported for an unknown type or field, or a template that does not hold the text once; DataError for a
///        damaged one.
SpecialTokenFrame read_post_processor(simdjson::dom::element json, const std::string& where);

}  // namespace megatron::hugging_face
