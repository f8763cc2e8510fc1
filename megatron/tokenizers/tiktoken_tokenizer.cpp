#include "megatron/tokenizers/tiktoken_tokenizer.h"

#include <algorithm>
#include <array>

#include "megatron/base/error.h"
#include "megatron/base/field.h"
#include "megatron/base/word_list.h"
#include "megatron/tokenizers/tiktoken_vocabulary.h"
#include "megatron/tokenizers/tokenizer_file.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {
constexpr std::array<std::string_view, 7> kRoles = {"<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"};
constexpr std::array<std::string_view, 3> kEndsOfDocument = {"<|endoftext|>", "<|end_of_text|>", "</s>"};

// Interface constants: Megatron's two patterns, tiktoken's of the same names, and that of Llama 3.
constexpr std::string_view kV1 =
    R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kV2 = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                                 R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                                 R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kR50k = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr std::string_view kCl100k =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n])"
    R"(|\s+(?!\S)|\s)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct NamedPattern {
  std::string_view name, pattern;
};
constexpr std::array<NamedPattern, 6> kPatterns = {
    {{"v1", kV1}, {"v2", kV2}, {"r50k", kR50k}, {"cl100k", kCl100k}, {"o200k", kO200k}, {"llama3", kLlama3}}};

std::string pattern_named(const std::string& name) {
  const auto found = std::ranges::find(kPatterns, name, &NamedPattern::name);
  require<ConfigError>(found != kPatterns.end(),
                       "--tiktoken-pattern {} is unknown; choose v1 or v2, or r50k, cl100k, o200k or llama3", name);
  return std::string(found->pattern);
}
}  // namespace

TiktokenTokenizer::TiktokenTokenizer(const Options& options) : options_(options) {
  const std::string pattern = pattern_named(options.pattern.value_or("v2"));
  content_ = read_tokenizer_file("--tokenizer-model", options.path);
  TiktokenVocabulary vocabulary = parse_tiktoken_vocabulary(content_, options.path);
  is_megatrons_ = vocabulary.is_megatrons;
  if (is_megatrons_)
    make_megatrons(std::move(vocabulary.tokens), pattern);
  else
    make_tiktokens(std::move(vocabulary.tokens), pattern);
}

std::vector<std::string> TiktokenTokenizer::filled_special_tokens() const {
  std::vector<std::string> tokens = options_.special_tokens;
  if (tokens.empty()) tokens.assign(kRoles.begin(), kRoles.end());
  for (const std::string_view role : kRoles)
    require<ConfigError>(std::ranges::find(tokens, role) != tokens.end(),
                         "--tokenizer-special-tokens of TikTokenizer must hold {}; {} is missing", joined(kRoles, " "),
                         role);
  require<ConfigError>(std::ssize(tokens) <= options_.num_special_tokens,
                       "--tokenizer-special-tokens has {} tokens, more than --tiktoken-num-special-tokens {}",
                       tokens.size(), options_.num_special_tokens);
  for (int64_t k = std::ssize(tokens); k < options_.num_special_tokens; ++k)
    tokens.push_back(fmt::format("<SPECIAL_{}>", k));
  return tokens;
}

void TiktokenTokenizer::make_megatrons(std::vector<std::string> tokens, const std::string& pattern) {
  vocab_size_ = options_.vocab_size.value_or(kDefaultVocabSize);
  const int64_t num_special = options_.num_special_tokens, num_ranked = vocab_size_ - num_special;
  require<ConfigError>(
      num_ranked >= 256,
      "--vocab-size {} with --tiktoken-num-special-tokens {} leaves {} tokens; the bytes alone are 256", vocab_size_,
      num_special, num_ranked);
  require<DataError>(std::ssize(tokens) >= num_ranked,
                     "--tokenizer-model {} has {} tokens, fewer than the {} of --vocab-size {} without {} special "
                     "tokens. Give --vocab-size {}",
                     options_.path, tokens.size(), num_ranked, vocab_size_, num_special,
                     std::ssize(tokens) + num_special);
  tokens.resize(static_cast<size_t>(num_ranked));
  TiktokenEncoding::Options made{
      .pattern = pattern, .tokens = std::move(tokens), .first_id = static_cast<TokenId>(num_special)};
  for (std::string& token : filled_special_tokens()) {
    const auto id = static_cast<TokenId>(made.special_tokens.size());
    if (token == "</s>") eod_ = id;
    if (token == "<pad>") pad_ = id;
    made.special_tokens.emplace_back(std::move(token), id);
  }
  encoding_ = std::make_unique<TiktokenEncoding>(made);
}

void TiktokenTokenizer::make_tiktokens(std::vector<std::string> tokens, const std::string& pattern) {
  require<ConfigError>(options_.pattern.has_value(),
                       "--tokenizer-model {} is a .tiktoken file, which does not say how it cuts text. Give "
                       "--tiktoken-pattern r50k, cl100k, o200k, llama3, v1 or v2",
                       options_.path);
  require<ConfigError>(options_.num_special_tokens == kDefaultNumSpecialTokens,
                       "--tiktoken-num-special-tokens is of Megatron's JSON files; special tokens of a .tiktoken file "
                       "are those of --tokenizer-special-tokens");
  TiktokenEncoding::Options made{.pattern = pattern, .tokens = std::move(tokens)};
  vocab_size_ = std::ssize(made.tokens);
  for (const std::string& token : options_.special_tokens) {
    const auto id = static_cast<TokenId>(vocab_size_++);
    if (!eod_ && std::ranges::find(kEndsOfDocument, token) != kEndsOfDocument.end()) eod_ = id;
    made.special_tokens.emplace_back(token, id);
  }
  encoding_ = std::make_unique<TiktokenEncoding>(made);
}

std::string TiktokenTokenizer::decode(std::span<const TokenId> ids) const {
  std::string bytes;
  for (const TokenId id : ids) {
    require_known(id);
    bytes += *encoding_->bytes_of(id);
  }
  return replace_invalid_utf8(bytes);
}

TokenizerIdentity TiktokenTokenizer::identity() const {
  TokenizerIdentity identity = {{"class", "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText"},
                                {"tokenizer_path", options_.path},
                                {"chat_template", "None"}};
  if (options_.pattern) identity.emplace_back("pattern", *options_.pattern);
  if (options_.vocab_size) identity.emplace_back("vocab_size", fmt::format("{}", *options_.vocab_size));
  identity.emplace_back("num_special_tokens", fmt::format("{}", options_.num_special_tokens));
  identity.emplace_back("special_tokens",
                        options_.special_tokens.empty() ? "None" : python_text(options_.special_tokens));
  return identity;
}

std::vector<TokenizerFile> TiktokenTokenizer::files() const {
  return {{is_megatrons_ ? "tokenizer.json" : "tokenizer.tiktoken", content_}};
}

}  // namespace megatron
