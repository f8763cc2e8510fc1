// Documents to token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/document_source.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

class SentenceSplitter;

/// How a document becomes sequences of ids.
struct DocumentEncoding {
  /// The document is a JSON object; the values of these keys, a string or a list of strings, are encoded. Of a key that
  /// occurs twice the last value counts. Empty: the document is the text.
  std::vector<std::string> json_keys = {};
  /// Adds the end of document to the last sequence of each document that has ids.
  bool append_eod = false;
  /// A document that is not the JSON that is asked for, or cannot be encoded, is left out instead of an error.
  bool skip_bad = false;
  /// Splits each text into sentences, which become sequences of the document; null: a text is one sequence. It must
  /// outlive the encoders.
  const SentenceSplitter* sentences = nullptr;
};

/// The sequences of documents, for one key.
struct EncodedDocuments {
  std::vector<TokenId> ids;               ///< of all sequences, one after the other
  std::vector<int32_t> sequence_lengths;  ///< in ids; never 0
  std::vector<int32_t> num_sequences;     ///< of each document; 0 if its text gives no ids
};

struct EncodedBatch {
  std::vector<EncodedDocuments> keys;  ///< in the order of the JSON keys; one if there are none
  std::vector<int64_t> input_bytes;    ///< of each document, also of those that are left out
  std::vector<std::string> bad;        ///< file, line and reason of each document that is left out
  DocumentPosition end = {};           ///< in the files, behind the batch
};

/// Encodes batches for one thread. Refers to the tokenizer, which must outlive it.
class DocumentEncoder {
 public:
  /// @throw ConfigError if append_eod is asked of a tokenizer that has no end of document.
  DocumentEncoder(const Tokenizer& tokenizer, const DocumentEncoding& encoding);
  ~DocumentEncoder();
  /// @throw DataError naming file and line if a document is not the JSON that is asked for or cannot be encoded, unless
  ///        such documents are left out.
  EncodedBatch encode(const RawBatch& batch);

 private:
  class JsonReader;
  void encode_document(const RawBatch& batch, const RawBatch::Document& document, EncodedBatch& result);
  void encode_texts(const std::vector<std::string_view>& texts, EncodedDocuments& result);

  std::unique_ptr<TextEncoder> encoder_;
  std::unique_ptr<JsonReader> json_;                  // null: documents are text
  std::vector<std::vector<std::string_view>> texts_;  // by key
  std::vector<std::string_view> split_texts_;
  std::optional<TokenId> appended_;
  bool skip_bad_;
  const SentenceSplitter* sentences_;
};

}  // namespace megatron
