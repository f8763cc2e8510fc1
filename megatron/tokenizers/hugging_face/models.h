// Models of a tokenizer.json: what turns a word into ids.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/hugging_face/json_fields.h"
#include "megatron/tokenizers/hugging_face/vocabulary.h"

namespace megatron::hugging_face {

/// Encodes words for one thread. Refers to its model.
class WordEncoder {
 public:
  virtual ~WordEncoder() = default;
  /// Appends the ids of a word that is not empty and valid UTF-8. @throw DataError if the model cannot write it.
  virtual void append(std::string_view word, std::vector<TokenId>& ids) = 0;
};

/// Immutable; threads may share it. Source: the model of the same name in Hugging Face's tokenizers 0.23.
class Model {
 public:
  virtual ~Model() = default;
  virtual std::unique_ptr<WordEncoder> make_encoder() const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

/// @throw NotSupported for an unknown type or field, DataError for a damaged one.
std::unique_ptr<Model> make_model(simdjson::dom::element json, const std::string& where);

/// One model each; `fields` are those of its object.
std::unique_ptr<Model> make_bpe_model(JsonFields& fields);
std::unique_ptr<Model> make_unigram_model(JsonFields& fields);
std::unique_ptr<Model> make_word_piece_model(JsonFields& fields);
std::unique_ptr<Model> make_word_level_model(JsonFields& fields);

/// Fills the vocabulary from an object {"token": id}.
void read_vocabulary(simdjson::dom::element json, const std::string& where, Vocabulary& vocabulary);

/// The ids of SentencePiece's byte tokens "<0x00>" ... "<0xFF>"; -1 for one that the vocabulary has not.
std::vector<TokenId> byte_token_ids(const Vocabulary& vocabulary);

}  // namespace megatron::hugging_face
