#include "megatron/tokenizers/hugging_face/tokenizer_json.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/tokenizers/utf8.h"
#include "megatron/tokenizers/word_cache.h"

namespace megatron::hugging_face {

TokenizerJson::TokenizerJson(std::string_view json, const std::string& where,
                             const std::vector<std::string>& special_tokens)
    : where_(where) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const simdjson::error_code error = parser.parse(json.data(), json.size()).get(root);
  require<DataError>(!error, "{} is not JSON: {}", where, simdjson::error_message(error));
  JsonFields fields(root, where);
  const std::string version = fields.find_string("version").value_or("1.0");
  require<NotSupported>(version == "1.0", "{} has the version {}; 1.0 is supported", where, version);
  // transformers, through which Megatron reads the file, turns both off.
  fields.skip("truncation");
  fields.skip("padding");
  if (const auto found = fields.find("normalizer")) normalizer_ = make_normalizer(*found, where + ": normalizer");
  if (const auto found = fields.find("pre_tokenizer"))
    splitting_ = make_pre_tokenizers(*found, where + ": pre_tokenizer");
  if (!splitting_.empty() && splitting_.back()->only_maps_bytes()) {
    byte_map_ = std::move(splitting_.back());
    splitting_.pop_back();
  }
  model_ = make_model(fields.get("model"), where + ": model");
  if (const auto found = fields.find("post_processor"))
    frame_ = read_post_processor(*found, where + ": post_processor");
  if (const auto found = fields.find("decoder")) decoder_ = make_decoder(*found, where + ": decoder");
  end_of_ids_ = model_->vocabulary().end_of_ids();
  if (fields.find("added_tokens"))
    add_tokens(read_added_tokens(fields.get_array("added_tokens"), where + ": added_tokens"));
  fields.require_all_read();
  for (const std::string& token : special_tokens)
    add_tokens({{.id = id_of(token).value_or(end_of_ids_), .content = token, .normalized = false, .special = true}});
}

std::string TokenizerJson::normalized_content(const AddedToken& token) const {
  if (!token.normalized || !normalizer_) return token.content;
  NormalizedText text{token.content, true};
  normalizer_->normalize(text);
  return text.text;
}

void TokenizerJson::add_tokens(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) {
    const auto known = model_->vocabulary().id_of(token.content);
    require<DataError>(!known || *known == token.id, "{}: the added token '{}' has the id {}, and {} in the vocabulary",
                       where_, token.content, token.id, known.value_or(0));
    const std::string text = normalized_content(token);
    (token.normalized ? normalized_matcher_ : raw_matcher_).add(text, token);
    has_normalized_tokens_ = has_normalized_tokens_ || token.normalized;
    added_[token.id] = text;
    if (token.special) special_contents_.insert(token.content);
    added_ids_[token.content] = token.id;
    end_of_ids_ = std::max(end_of_ids_, token.id + 1);
  }
}

TokenId TokenizerJson::end_of_ids() const { return end_of_ids_; }

std::optional<TokenId> TokenizerJson::id_of(std::string_view token) const {
  const auto place = added_ids_.find(std::string(token));
  return place != added_ids_.end() ? std::optional(place->second) : model_->vocabulary().id_of(token);
}

std::vector<TokenId> TokenizerJson::special_ids() const {
  std::vector<TokenId> ids;
  ids.reserve(special_contents_.size());
  for (const std::string& content : special_contents_) ids.push_back(added_ids_.at(content));
  std::ranges::sort(ids);
  return ids;
}

std::string TokenizerJson::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  for (const TokenId id : ids) {
    const auto added = added_.find(id);
    const std::string* token = added != added_.end() ? &added->second : model_->vocabulary().token_of(id);
    if (token && !(skip_special_tokens && special_contents_.contains(*token))) tokens.push_back(*token);
  }
  if (!decoder_) return joined(tokens, " ");
  decoder_->decode(tokens);
  return joined(tokens, "");
}

/// The ids of words, remembered.
class TextPipeline::Words {
 public:
  Words(const Model& model, const PreTokenizer* byte_map) : encoder_(model.make_encoder()), byte_map_(byte_map) {}

  void append(std::string_view word, IdBuffer& ids) {
    if (!cache_.append(word, ids)) append_new(word, ids);
  }
  /// Does the same as WordCache::append_words.
  void append(std::string_view text, std::span<const size_t> bounds, size_t readable, IdBuffer& ids) {
    cache_.append_words(text, bounds, readable, ids, [this, &ids](std::string_view word) { append_new(word, ids); });
  }

 private:
  void append_new(std::string_view word, IdBuffer& ids) {
    word_ids_.clear();
    if (byte_map_)
      byte_map_->split({word, false}, scratch_, [this](Piece mapped) { encoder_->append(mapped.text, word_ids_); });
    else
      encoder_->append(word, word_ids_);
    cache_.insert(word, word_ids_);
    ids.append(word_ids_);
  }

  std::unique_ptr<WordEncoder> encoder_;
  const PreTokenizer* byte_map_;
  SplitScratch scratch_;
  WordCache cache_;
  std::vector<TokenId> word_ids_;
};

TextPipeline::TextPipeline(const TokenizerJson& tokenizer)
    : tokenizer_(tokenizer),
      scratch_(tokenizer.splitting_.size()),
      words_(std::make_unique<Words>(*tokenizer.model_, tokenizer.byte_map_.get())) {
  const RegexPattern* pattern =
      tokenizer.splitting_.empty() ? nullptr : tokenizer.splitting_.back()->isolated_pattern();
  if (pattern != nullptr) last_splitter_.emplace(*pattern);
}

TextPipeline::~TextPipeline() = default;

void TextPipeline::append(std::string_view text, std::vector<TokenId>& ids) {
  require_utf8(text);
  ids_.clear();
  tokenizer_.raw_matcher_.for_each_part(
      text, [&](size_t begin, size_t end) { append_part(text.substr(begin, end - begin), begin == 0); },
      [&](TokenId id) { ids_.push_back(id); });
  ids.insert(ids.end(), ids_.ids().begin(), ids_.ids().end());
}

void TextPipeline::append_part(std::string_view part, bool starts_document) {
  if (!tokenizer_.normalizer_) return append_normalized(part, starts_document);
  NormalizedText normalized{std::string(part), starts_document};
  tokenizer_.normalizer_->normalize(normalized);
  append_normalized(normalized.text, normalized.starts_document);
}

void TextPipeline::append_normalized(std::string_view text, bool starts_document) {
  if (!tokenizer_.has_normalized_tokens_) {
    if (!text.empty()) split(0, {text, starts_document});
    return;
  }
  tokenizer_.normalized_matcher_.for_each_part(
      text,
      [&](size_t begin, size_t end) {
        split(0, {text.substr(begin, end - begin), starts_document && begin == 0});
      },
      [&](TokenId id) { ids_.push_back(id); });
}

void TextPipeline::split(size_t step, Piece piece) {
  if (step == tokenizer_.splitting_.size()) return words_->append(piece.text, ids_);
  if (step + 1 == tokenizer_.splitting_.size() && last_splitter_) {
    const char* const end = piece.text.data() + piece.text.size();
    return last_splitter_->for_each_batch(
        piece.text, [this, end](std::string_view words, std::span<const size_t> bounds) {
          words_->append(words, bounds, static_cast<size_t>(end - words.data()), ids_);
        });
  }
  tokenizer_.splitting_[step]->split(piece, scratch_[step], [this, step](Piece part) {
    if (!part.text.empty()) split(step + 1, part);
  });
}

}  // namespace megatron::hugging_face
