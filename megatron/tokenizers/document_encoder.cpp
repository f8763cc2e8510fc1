#include "megatron/tokenizers/document_encoder.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>

#include "megatron/base/error.h"

namespace megatron {

/// Takes the texts out of JSON objects. Values of other keys are skipped, not validated.
class DocumentEncoder::JsonReader {
 public:
  explicit JsonReader(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  /// Fills `texts[k]` with the texts of key k; they are valid until the next call. `json` must be followed by
  /// RawBatch::kPaddingBytes bytes.
  void read(std::string_view json, std::vector<std::vector<std::string_view>>& texts) {
    static_assert(RawBatch::kPaddingBytes >= simdjson::SIMDJSON_PADDING);
    found_.assign(keys_.size(), false);
    try {
      simdjson::ondemand::document document = parser_.iterate(json, json.size() + RawBatch::kPaddingBytes);
      for (auto field : document.get_object()) {
        const std::string_view name = field.unescaped_key();
        const auto key = std::ranges::find(keys_, name);
        if (key == keys_.end()) continue;
        const auto index = static_cast<size_t>(key - keys_.begin());
        read_texts(field.value(), *key, texts[index]);
        found_[index] = true;
      }
      require<DataError>(document.current_location().error() == simdjson::OUT_OF_BOUNDS,
                         "something follows the JSON object");
    } catch (const simdjson::simdjson_error& error) {
      throw DataError(fmt::format("not a JSON object: {}", error.what()));
    }
    for (size_t k = 0; k < keys_.size(); ++k)
      require<DataError>(found_[k], "the JSON object has no key '{}' (--json-keys)", keys_[k]);
  }

 private:
  static void read_texts(simdjson::ondemand::value value, const std::string& key,
                         std::vector<std::string_view>& texts) {
    const auto add_string = [&](simdjson::ondemand::value text) {
      require<DataError>(text.type() == simdjson::ondemand::json_type::string,
                         "the value of '{}' is neither a string nor a list of strings", key);
      texts.push_back(text.get_string());
    };
    texts.clear();
    if (value.type() == simdjson::ondemand::json_type::array)
      for (auto text : value.get_array()) add_string(text.value());
    else
      add_string(value);
  }

  std::vector<std::string> keys_;
  std::vector<bool> found_;
  simdjson::ondemand::parser parser_;
};

DocumentEncoder::DocumentEncoder(const Tokenizer& tokenizer, const DocumentEncoding& encoding)
    : encoder_(tokenizer.make_encoder()) {
  if (!encoding.json_keys.empty()) json_ = std::make_unique<JsonReader>(encoding.json_keys);
  texts_.resize(std::max<size_t>(1, encoding.json_keys.size()));
  if (!encoding.append_eod) return;
  appended_ = tokenizer.eod();
  require<ConfigError>(appended_.has_value(), "--append-eod: the vocabulary has no end of document");
}

DocumentEncoder::~DocumentEncoder() = default;

EncodedBatch DocumentEncoder::encode(const RawBatch& batch) {
  EncodedBatch result;
  result.keys.resize(texts_.size());
  for (const RawBatch::Document& document : batch.documents) {
    try {
      encode_document(batch, document, result);
    } catch (const DataError& error) {
      throw DataError(fmt::format("{} line {}: {}", batch.file, document.line, error.what()));
    }
    result.input_bytes.push_back(document.input_bytes);
  }
  return result;
}

void DocumentEncoder::encode_document(const RawBatch& batch, const RawBatch::Document& document, EncodedBatch& result) {
  const std::string_view text = batch.text_of(document);
  if (json_)
    json_->read(text, texts_);
  else
    texts_[0].assign(1, text);
  for (size_t k = 0; k < texts_.size(); ++k) encode_texts(texts_[k], result.keys[k]);
}

void DocumentEncoder::encode_texts(const std::vector<std::string_view>& texts, EncodedDocuments& result) {
  const size_t first = result.sequence_lengths.size();
  for (const std::string_view text : texts) {
    const size_t old_size = result.ids.size();
    encoder_->append(text, result.ids);
    const size_t length = result.ids.size() - old_size;
    require<DataError>(length < std::numeric_limits<int32_t>::max(), "a text of {} tokens is longer than 2^31 - 2",
                       length);
    if (length > 0) result.sequence_lengths.push_back(static_cast<int32_t>(length));
  }
  const size_t count = result.sequence_lengths.size() - first;
  if (appended_ && count > 0) {
    result.ids.push_back(*appended_);
    ++result.sequence_lengths.back();
  }
  result.num_sequences.push_back(static_cast<int32_t>(count));
}

}  // namespace megatron
