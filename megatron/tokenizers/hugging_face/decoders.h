// Decoders of a tokenizer.json: what makes a text of tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/tokenizers/hugging_face/json_fields.h"

namespace megatron::hugging_face {

/// Immutable; threads may share it. Source: the component of the same name in Hugging Face's tokenizers 0.23.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Replaces tokens by parts of the text, which are its concatenation when all steps are done.
  virtual void decode(std::vector<std::string>& tokens) const = 0;
};

/// @throw NotSupported for an unknown type or field, DataError for a damaged one.
std::unique_ptr<Decoder> make_decoder(simdjson::dom::element json, const std::string& where);

}  // namespace megatron::hugging_face
