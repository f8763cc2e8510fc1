#include "megatron/tokenizers/tokenizer_factory.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/tokenizers/bert_word_piece_tokenizer.h"
#include "megatron/tokenizers/byte_level_tokenizer.h"
#include "megatron/tokenizers/char_tokenizer.h"
#include "megatron/tokenizers/gpt2_bpe_tokenizer.h"
#include "megatron/tokenizers/hugging_face_tokenizer.h"
#include "megatron/tokenizers/null_tokenizer.h"
#include "megatron/tokenizers/sentence_piece_tokenizer.h"
#include "megatron/tokenizers/tiktoken_tokenizer.h"

namespace megatron {
namespace {
/// A flag and whether the command line has it.
struct Flag {
  std::string_view name;
  bool given;
};

std::vector<Flag> flags_of(const TokenizerOptions& options) {
  return {{"--vocab-file", !options.vocab_file.empty()},
          {"--merge-file", !options.merge_file.empty()},
          {"--tokenizer-model", !options.model.empty()},
          {"--vocab-size", options.vocab_size.has_value()},
          {"--tokenizer-special-tokens", !options.special_tokens.empty()},
          {"--null-tokenizer-eod-id", options.null_eod.has_value()},
          {"--null-tokenizer-pad-id", options.null_pad != -1},
          {"--tokenizer-hf-no-include-special-tokens", options.hf_no_include_special_tokens},
          {"--tiktoken-pattern", options.tiktoken_pattern.has_value()},
          {"--tiktoken-num-special-tokens", options.tiktoken_num_special_tokens.has_value()},
          {"--tokenizer-sentencepiece-legacy", options.sentencepiece_legacy},
          {"--no-tokenizer-sentencepiece-ignore-extra-whitespaces", !options.sentencepiece_ignore_extra_whitespaces}};
}

/// A type: the flags that it cannot do without, those that it may have, and how it is made.
struct Type {
  std::string_view name;
  std::vector<std::string_view> needed, allowed;
  std::unique_ptr<Tokenizer> (*make)(const TokenizerOptions&);
};

std::unique_ptr<Tokenizer> make_hugging_face(const TokenizerOptions& c) {
  return std::make_unique<HuggingFaceTokenizer>(HuggingFaceTokenizer::Options{
      .path = c.model, .include_special_tokens = !c.hf_no_include_special_tokens, .special_tokens = c.special_tokens});
}

std::unique_ptr<Tokenizer> make_bert(const TokenizerOptions& c) {
  return std::make_unique<BertWordPieceTokenizer>(
      BertWordPieceTokenizer::Options{.vocab_file = c.vocab_file,
                                      .lower_case = c.type == "BertWordPieceLowerCase",
                                      .include_special_tokens = !c.hf_no_include_special_tokens,
                                      .special_tokens = c.special_tokens});
}

std::unique_ptr<Tokenizer> make_sentence_piece(const TokenizerOptions& c) {
  return std::make_unique<SentencePieceTokenizer>(
      SentencePieceTokenizer::Options{.path = c.model,
                                      .special_tokens = c.special_tokens,
                                      .legacy = c.sentencepiece_legacy,
                                      .ignore_extra_whitespaces = c.sentencepiece_ignore_extra_whitespaces});
}

std::unique_ptr<Tokenizer> make_tiktoken(const TokenizerOptions& c) {
  return std::make_unique<TiktokenTokenizer>(TiktokenTokenizer::Options{
      .path = c.model,
      .pattern = c.tiktoken_pattern,
      .vocab_size = c.vocab_size,
      .num_special_tokens = c.tiktoken_num_special_tokens.value_or(TiktokenTokenizer::kDefaultNumSpecialTokens),
      .special_tokens = c.special_tokens});
}

std::vector<Type> types() {
  const std::vector<std::string_view> sentence_piece_flags = {"--vocab-size", "--tokenizer-special-tokens",
                                                              "--tokenizer-sentencepiece-legacy",
                                                              "--no-tokenizer-sentencepiece-ignore-extra-whitespaces"};
  const std::vector<std::string_view> hugging_face_flags = {"--vocab-size", "--tokenizer-special-tokens",
                                                            "--tokenizer-hf-no-include-special-tokens"};
  return {
      {"GPT2BPETokenizer",
       {"--vocab-file", "--merge-file"},
       {"--vocab-size", "--tokenizer-special-tokens"},
       [](const TokenizerOptions& c) -> std::unique_ptr<Tokenizer> {
         return std::make_unique<Gpt2BpeTokenizer>(Gpt2BpeTokenizer::Options{
             .vocab_file = c.vocab_file, .merge_file = c.merge_file, .special_tokens = c.special_tokens});
       }},
      {"NullTokenizer",
       {"--vocab-size"},
       {"--null-tokenizer-eod-id", "--null-tokenizer-pad-id"},
       [](const TokenizerOptions& c) -> std::unique_ptr<Tokenizer> {
         return std::make_unique<NullTokenizer>(
             NullTokenizer::Options{.vocab_size = c.vocab_size.value(), .eod = c.null_eod, .pad = c.null_pad});
       }},
      {"HuggingFaceTokenizer", {"--tokenizer-model"}, hugging_face_flags, make_hugging_face},
      {"Llama3Tokenizer", {"--tokenizer-model"}, hugging_face_flags, make_hugging_face},
      {"SFTTokenizer", {"--tokenizer-model"}, hugging_face_flags, make_hugging_face},
      {"SentencePieceTokenizer", {"--tokenizer-model"}, sentence_piece_flags, make_sentence_piece},
      {"GPTSentencePieceTokenizer", {"--tokenizer-model"}, sentence_piece_flags, make_sentence_piece},
      {"Llama2Tokenizer", {"--tokenizer-model"}, sentence_piece_flags, make_sentence_piece},
      {"TikTokenizer",
       {"--tokenizer-model"},
       {"--vocab-size", "--tokenizer-special-tokens", "--tiktoken-pattern", "--tiktoken-num-special-tokens"},
       make_tiktoken},
      {"BertWordPieceLowerCase", {"--vocab-file"}, hugging_face_flags, make_bert},
      {"BertWordPieceCase", {"--vocab-file"}, hugging_face_flags, make_bert},
      {"ByteLevelTokenizer",
       {},
       {"--vocab-size"},
       [](const TokenizerOptions&) -> std::unique_ptr<Tokenizer> { return std::make_unique<ByteLevelTokenizer>(); }},
      {"CharTokenizer",
       {"--vocab-file"},
       {"--vocab-size"},
       [](const TokenizerOptions& c) -> std::unique_ptr<Tokenizer> {
         return std::make_unique<CharTokenizer>(CharTokenizer::from_file(c.vocab_file));
       }}};
}

/// A type of Megatron's that does not exist here, and why.
struct RefusedType {
  std::string_view name, reason;
};
constexpr std::array<RefusedType, 2> kRefusedTypes = {{{"MultimodalTokenizer", "there are no multimodal models"},
                                                       {"NullMultimodalTokenizer", "there are no multimodal models"}}};

[[noreturn]] void refuse_type(const std::string& type) {
  const std::string known = joined(tokenizer_types(), ", ");
  if (type.empty()) throw ConfigError(fmt::format("--tokenizer-type is missing. Choose one of: {}", known));
  const auto refused = std::ranges::find(kRefusedTypes, type, &RefusedType::name);
  if (refused != kRefusedTypes.end())
    throw NotSupported(fmt::format("--tokenizer-type {} does not exist in this version: {}. It has: {}", type,
                                   refused->reason, known));
  throw ConfigError(fmt::format("--tokenizer-type {} is unknown. Choose one of: {}", type, known));
}

bool holds(const std::vector<std::string_view>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// Throws one error that lists all flags which are missing or have no meaning for the type.
void require_flags(const Type& type, const TokenizerOptions& options) {
  std::vector<std::string> mistakes;
  for (const Flag& flag : flags_of(options)) {
    if (holds(type.needed, flag.name)) {
      if (flag.given) continue;
      mistakes.push_back(fmt::format("{} is missing", flag.name));
      if (type.name == "CharTokenizer") mistakes.back() += fmt::format(". {}", kHowToMakeACharVocabulary);
    } else if (flag.given && !holds(type.allowed, flag.name)) {
      mistakes.push_back(fmt::format("{} has no meaning for it", flag.name));
    }
  }
  require<ConfigError>(mistakes.empty(), "--tokenizer-type {}: {}", type.name, joined(mistakes, "; "));
}
}  // namespace

std::vector<std::string> tokenizer_types() {
  std::vector<std::string> names;
  for (const Type& type : types()) names.emplace_back(type.name);
  return names;
}

bool tokenizer_reads(std::string_view type, std::string_view flag) {
  const std::vector<Type> known = types();
  const auto place = std::ranges::find(known, type, &Type::name);
  return place != known.end() && (holds(place->needed, flag) || holds(place->allowed, flag));
}

std::vector<std::string> tokenizer_model_files(const std::string& path) { return HuggingFaceTokenizer::paths(path); }

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options) {
  const std::vector<Type> known = types();
  const auto type = std::ranges::find(known, options.type, &Type::name);
  if (type == known.end()) refuse_type(options.type);
  require_flags(*type, options);
  std::unique_ptr<Tokenizer> tokenizer = type->make(options);
  // A model may have more entries than its tokenizer, as those of Qwen do.
  require<ConfigError>(
      !options.vocab_size || *options.vocab_size >= tokenizer->vocab_size(),
      "--vocab-size is {}, but the vocabulary of this {} has {} tokens. Leave the flag out or correct it",
      options.vocab_size.value_or(0), type->name, tokenizer->vocab_size());
  return tokenizer;
}

}  // namespace megatron
