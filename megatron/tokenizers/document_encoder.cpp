#include "megatron/tokenizers/document_encoder.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/tokenizers/json_syntax.h"
#include "megatron/tokenizers/sentence_splitter.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kShownBytes = 24;
constexpr size_t kShownKeys = 8;

/// Returns the part of a line that an error shows: its start, without control characters and cut characters.
std::string shown(std::string_view text) {
  std::string start = replace_invalid_utf8(text.substr(0, kShownBytes));
  for (char& c : start)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return text.size() > kShownBytes ? start + "..." : start;
}

/// Says whether a line that is not a JSON object may be one of a plain text.
bool looks_like_text(const std::string& file, std::string_view line) {
  const size_t first = line.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? file.ends_with(".txt") : line[first] != '{';
}

/// Rejects the texts that Python's json.loads rejects.
void require_json_object(std::string_view json) {
  require<DataError>(json.find_first_not_of(" \t\r\n") != std::string_view::npos,
                     "the line is empty, and each line is to be a JSON object. Remove empty lines: sed -i '/^\\s*$/d' "
                     "FILE");
  require<DataError>(!json.starts_with(kByteOrderMark),
                     "the line starts with a byte order mark (EF BB BF), which is not JSON. Remove it: sed -i "
                     "'s/^\\xEF\\xBB\\xBF//' FILE");
  const std::optional<JsonFault> fault = find_json_fault(json);
  if (!fault) return;
  const std::string_view rest = json.substr(fault->offset);
  throw DataError(fmt::format(
      "not a JSON object: {} is expected at byte {}, not {}. Each line is one object such as {{\"text\": \"...\"}}: "
      "correct the line, or remove it",
      fault->expected, fault->offset + 1, rest.empty() ? "the end of the line" : fmt::format("'{}'", shown(rest))));
}

}  // namespace

/// Takes the texts out of JSON objects.
class DocumentEncoder::JsonReader {
 public:
  explicit JsonReader(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  /// Fills `texts[k]` with the texts of key k; they are valid until the next call. `json` must be followed by
  /// RawBatch::kPaddingBytes bytes.
  void read(std::string_view json, std::vector<std::vector<std::string_view>>& texts) {
    static_assert(RawBatch::kPaddingBytes >= simdjson::SIMDJSON_PADDING);
    require_json_object(json);
    found_.assign(keys_.size(), false);
    try {
      simdjson::ondemand::document document = parser_.iterate(json, json.size() + RawBatch::kPaddingBytes);
      for (auto field : document.get_object()) {
        std::string_view name;
        if (field.unescaped_key().get(name) != simdjson::SUCCESS) continue;  // half of a surrogate pair: no key of ours
        const auto key = std::ranges::find(keys_, name);
        if (key == keys_.end()) continue;
        const auto index = static_cast<size_t>(key - keys_.begin());
        read_texts(field.value(), *key, texts[index]);
        found_[index] = true;
      }
    } catch (const simdjson::simdjson_error& error) {
      require_utf8(json);
      throw DataError(fmt::format("not a JSON object: {}. Correct the line, or remove it", error.what()));
    }
    const auto missing = std::ranges::find(found_, false);
    if (missing == found_.end()) return;
    throw DataError(
        fmt::format("the JSON object has no key '{}' (--json-keys); it has {}. Name a key that all lines "
                    "have, or remove the line",
                    keys_[static_cast<size_t>(missing - found_.begin())], keys_of(json)));
  }

 private:
  /// For an error.
  std::string keys_of(std::string_view json) {
    std::vector<std::string> names;
    simdjson::ondemand::document document = parser_.iterate(json, json.size() + RawBatch::kPaddingBytes);
    for (auto field : document.get_object()) {
      if (names.size() == kShownKeys) return joined(names, ", ") + ", ...";
      std::string_view name;
      if (field.unescaped_key().get(name) == simdjson::SUCCESS) names.push_back(fmt::format("'{}'", shown(name)));
    }
    return names.empty() ? "none" : joined(names, ", ");
  }

  static void read_texts(simdjson::ondemand::value value, const std::string& key,
                         std::vector<std::string_view>& texts) {
    const auto add_string = [&](simdjson::ondemand::value text) {
      const std::string_view token = text.raw_json_token();
      require<DataError>(token.starts_with('"'),
                         "the value of '{}' is neither a string nor a list of strings: {}. Put it in double quotes, or "
                         "name another key with --json-keys",
                         key, shown(token));
      std::string_view string;
      require<DataError>(text.get_string().get(string) == simdjson::SUCCESS,
                         "the value of '{}' has an escape \\uD800 to \\uDFFF that is half of a pair and so no "
                         "character. Write the character itself, or remove the line",
                         key);
      texts.push_back(string);
    };
    texts.clear();
    if (value.raw_json_token().starts_with('['))
      for (auto text : value.get_array()) add_string(text.value());
    else
      add_string(value);
  }

  std::vector<std::string> keys_;
  std::vector<bool> found_;
  simdjson::ondemand::parser parser_;
};

namespace {

/// How much of a key is there.
struct Sizes {
  size_t ids, sequence_lengths, num_sequences;
};

std::vector<Sizes> sizes_of(const std::vector<EncodedDocuments>& keys) {
  std::vector<Sizes> sizes;
  sizes.reserve(keys.size());
  for (const EncodedDocuments& key : keys)
    sizes.push_back({key.ids.size(), key.sequence_lengths.size(), key.num_sequences.size()});
  return sizes;
}

void cut_to(const std::vector<Sizes>& sizes, std::vector<EncodedDocuments>& keys) {
  for (size_t k = 0; k < keys.size(); ++k) {
    keys[k].ids.resize(sizes[k].ids);
    keys[k].sequence_lengths.resize(sizes[k].sequence_lengths);
    keys[k].num_sequences.resize(sizes[k].num_sequences);
  }
}

}  // namespace

DocumentEncoder::DocumentEncoder(const Tokenizer& tokenizer, const DocumentEncoding& encoding)
    : encoder_(tokenizer.make_encoder()), skip_bad_(encoding.skip_bad), sentences_(encoding.sentences) {
  if (!encoding.json_keys.empty()) json_ = std::make_unique<JsonReader>(encoding.json_keys);
  texts_.resize(std::max<size_t>(1, encoding.json_keys.size()));
  if (!encoding.append_eod) return;
  appended_ = tokenizer.eod();
  require<ConfigError>(appended_.has_value(), "--append-eod: the vocabulary has no end of document");
}

DocumentEncoder::~DocumentEncoder() = default;

EncodedBatch DocumentEncoder::encode(const RawBatch& batch) {
  EncodedBatch result;
  result.end = batch.end;
  result.keys.resize(texts_.size());
  for (const RawBatch::Document& document : batch.documents) {
    const std::vector<Sizes> before = skip_bad_ ? sizes_of(result.keys) : std::vector<Sizes>();
    try {
      encode_document(batch, document, result);
    } catch (const DataError& error) {
      const bool is_text = json_ && looks_like_text(batch.file, batch.text_of(document));
      std::string text = fmt::format("{} line {}: {}{}", batch.file, document.line, error.what(),
                                     is_text ? ". If the file is plain text, give --input-format text" : "");
      if (!skip_bad_) throw DataError(text);
      cut_to(before, result.keys);
      result.bad.push_back(std::move(text));
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
  for (size_t k = 0; k < texts_.size(); ++k) {
    if (sentences_ != nullptr) {
      split_texts_.clear();
      for (const std::string_view whole : texts_[k]) sentences_->split(whole, split_texts_);
    }
    encode_texts(sentences_ != nullptr ? split_texts_ : texts_[k], result.keys[k]);
  }
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
