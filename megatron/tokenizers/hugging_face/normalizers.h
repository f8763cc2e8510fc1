// Normalizers of a tokenizer.json: what changes a text before it is cut.
#pragma once

#include <memory>
#include <string>

#include "megatron/tokenizers/hugging_face/json_fields.h"

namespace megatron::hugging_face {

struct NormalizedText {
  std::string text;
  /// Says whether its first character stands for the first one of the document, which Metaspace asks for.
  bool starts_document;
};

/// Immutable; threads may share it. Source: the component of the same name in Hugging Face's tokenizers 0.23.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void normalize(NormalizedText& text) const = 0;
};

/// @param json  the object of the normalizer. @param where  names it in errors.
/// @throw NotSupported for an unknown type or field, DataError for a damaged one.
std::unique_ptr<Normalizer> make_normalizer(simdjson::dom::element json, const std::string& where);

}  // namespace megatron::hugging_face
