#include "megatron/tokenizers/bert_word_piece_tokenizer.h"

#include <algorithm>
#include <array>

#include "megatron/base/error.h"
#include "megatron/base/field.h"
#include "megatron/base/word_list.h"
#include "megatron/tokenizers/hugging_face/framed_encoder.h"
#include "megatron/tokenizers/json_string.h"
#include "megatron/tokenizers/tokenizer_file.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {
constexpr std::array<std::string_view, 5> kSpecialTokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
constexpr int kNumExtraIds = 100;

/// A token a line; the last line may lack its newline.
std::vector<std::string> lines_of(const std::string& content, const std::string& path) {
  require<DataError>(!find_invalid_utf8(content), "--vocab-file {} is not UTF-8. Give the vocab.txt of BERT", path);
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    lines.push_back(content.substr(begin, end - begin));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    begin = end + 1;
  }
  return lines;
}

/// The tokenizer.json that transformers makes of a vocab.txt.
std::string tokenizer_json_of(const std::vector<std::string>& tokens, bool lower_case, const std::string& path) {
  const auto id_of = [&](std::string_view token) {
    const auto place = std::ranges::find(tokens, token);
    require<DataError>(place != tokens.end(), "--vocab-file {} has no token {}: it is not a vocabulary of BERT", path,
                       token);
    return place - tokens.begin();
  };
  std::vector<std::string> vocab, added;
  for (size_t id = 0; id < tokens.size(); ++id) vocab.push_back(fmt::format("{}: {}", json_string(tokens[id]), id));
  for (const std::string_view token : kSpecialTokens)
    if (std::ranges::find(tokens, token) != tokens.end())
      added.push_back(fmt::format(R"({{"id": {}, "content": "{}", "single_word": false, "lstrip": false,
                                      "rstrip": false, "normalized": false, "special": true}})",
                                  id_of(token), token));
  id_of("[UNK]");
  return fmt::format(
      R"({{"added_tokens": [{}],
           "normalizer": {{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                           "strip_accents": null, "lowercase": {}}},
           "pre_tokenizer": {{"type": "BertPreTokenizer"}},
           "post_processor": {{"type": "BertProcessing", "cls": ["[CLS]", {}], "sep": ["[SEP]", {}]}},
           "decoder": {{"type": "WordPiece", "prefix": "##", "cleanup": true}},
           "model": {{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": {{{}}}}}}})",
      joined(added, ", "), lower_case, id_of("[CLS]"), id_of("[SEP]"), joined(vocab, ", "));
}
}  // namespace

BertWordPieceTokenizer::BertWordPieceTokenizer(const Options& options)
    : options_(options), content_(read_tokenizer_file("--vocab-file", options.vocab_file)) {
  const std::vector<std::string> tokens = lines_of(content_, options.vocab_file);
  const std::string where = "--vocab-file " + options.vocab_file;
  json_ = std::make_unique<hugging_face::TokenizerJson>(
      tokenizer_json_of(tokens, options.lower_case, options.vocab_file), where, all_special_tokens());
  eod_ = json_->id_of("[SEP]");
  pad_ = json_->id_of("[PAD]");
}

BertWordPieceTokenizer::~BertWordPieceTokenizer() = default;

std::vector<std::string> BertWordPieceTokenizer::all_special_tokens() const {
  std::vector<std::string> tokens = options_.special_tokens;
  if (!options_.lower_case)
    for (int i = 0; i < kNumExtraIds; ++i) tokens.push_back(fmt::format("<extra_id_{}>", i));
  return tokens;
}

std::unique_ptr<TextEncoder> BertWordPieceTokenizer::make_encoder() const {
  return std::make_unique<hugging_face::FramedEncoder>(*json_, options_.include_special_tokens);
}

std::string BertWordPieceTokenizer::decode(std::span<const TokenId> ids) const {
  for (const TokenId id : ids) require_known(id);
  return json_->decode(ids, false);
}

int64_t BertWordPieceTokenizer::vocab_size() const { return json_->end_of_ids(); }

std::optional<TokenId> BertWordPieceTokenizer::id_of(std::string_view token) const { return json_->id_of(token); }

TokenizerIdentity BertWordPieceTokenizer::identity() const {
  return {{"class", "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText"},
          {"tokenizer_path", options_.lower_case ? "BertWordPieceLowerCase" : "BertWordPieceCase"},
          {"additional_special_tokens", python_text(all_special_tokens())},
          {"vocab_file", options_.vocab_file},
          {"merges_file", "None"},
          {"use_fast", "True"},
          {"trust_remote_code", "False"},
          {"include_special_tokens", options_.include_special_tokens ? "True" : "False"},
          {"use_gigatoken", "False"}};
}

}  // namespace megatron
