#include "megatron/tokenizers/gpt2_bpe_tokenizer.h"

#include "megatron/base/error.h"
#include "megatron/base/field.h"
#include "megatron/tokenizers/bpe_vocabulary.h"
#include "megatron/tokenizers/byte_alphabet.h"
#include "megatron/tokenizers/utf8.h"
#include "megatron/tokenizers/word_cache.h"

namespace megatron {
namespace {
// GPT-2's encoder.py; an interface constant.
constexpr std::string_view kPattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The bytes that a token decodes to: a special token is its text unless that is written in the alphabet of bytes.
std::string decoded_bytes(const std::string& token) { return bytes_of_alphabet(token).value_or(token); }
}  // namespace

class Gpt2BpeEncoder final : public TextEncoder {
 public:
  explicit Gpt2BpeEncoder(const Gpt2BpeTokenizer& tokenizer)
      : tokenizer_(tokenizer), splitter_(tokenizer.pattern_), merger_(tokenizer.merges_) {}

  void append(std::string_view text, std::vector<TokenId>& ids) override {
    require_utf8(text);
    ids_.clear();
    const char* const end = text.data() + text.size();
    tokenizer_.special_tokens_.for_each_part(
        text,
        [&](std::string_view part) {
          splitter_.for_each_batch(part, [&](std::string_view words, std::span<const size_t> bounds) {
            cache_.append_words(words, bounds, static_cast<size_t>(end - words.data()), ids_,
                                [this](std::string_view word) { append_new(word); });
          });
        },
        [&](TokenId id) { ids_.push_back(id); });
    ids.insert(ids.end(), ids_.ids().begin(), ids_.ids().end());
  }

 private:
  void append_new(std::string_view word) {
    word_ids_.clear();
    for (const char c : word) word_ids_.push_back(tokenizer_.byte_ids_[static_cast<unsigned char>(c)]);
    merger_.merge(word_ids_);
    cache_.insert(word, word_ids_);
    ids_.append(word_ids_);
  }

  const Gpt2BpeTokenizer& tokenizer_;
  RegexSplitter splitter_;
  BpeMerger merger_;
  WordCache cache_;
  IdBuffer ids_;
  std::vector<TokenId> word_ids_;
};

Gpt2BpeTokenizer::Gpt2BpeTokenizer(const Options& options) : options_(options), pattern_(kPattern) {
  BpeVocabulary vocabulary = read_bpe_vocabulary(options.vocab_file, options.merge_file);
  merges_ = std::move(vocabulary.merges);
  vocab_json_ = vocab_json_of(vocabulary);
  merge_lines_ = std::move(vocabulary.merge_lines);
  for (const std::string& token : vocabulary.tokens) bytes_.push_back(decoded_bytes(token));
  const std::array<std::string, 256> alphabet = byte_alphabet();
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto place = vocabulary.ids.find(alphabet[byte]);
    require<DataError>(place != vocabulary.ids.end(),
                       "the vocabulary {} has no token '{}' for the byte {:#04x}: it is not byte-level",
                       options.vocab_file, alphabet[byte], byte);
    byte_ids_[byte] = place->second;
  }
  add_special_tokens(vocabulary.ids);
}

void Gpt2BpeTokenizer::add_special_tokens(const std::unordered_map<std::string, TokenId>& ids) {
  const auto eod = ids.find(options_.eod);
  require<DataError>(eod != ids.end(), "the vocabulary {} has no token {}, which ends a document", options_.vocab_file,
                     options_.eod);
  eod_ = eod->second;
  special_tokens_.add(options_.eod, eod_);
  for (const std::string& token : options_.special_tokens) {
    if (token == options_.eod) continue;
    const auto place = ids.find(token);
    special_tokens_.add(token, place != ids.end() ? place->second : static_cast<TokenId>(bytes_.size()));
    if (place == ids.end()) bytes_.push_back(decoded_bytes(token));
  }
}

std::unique_ptr<TextEncoder> Gpt2BpeTokenizer::make_encoder() const { return std::make_unique<Gpt2BpeEncoder>(*this); }

std::string Gpt2BpeTokenizer::decode(std::span<const TokenId> ids) const {
  std::string bytes;
  for (const TokenId id : ids) {
    require_known(id);
    bytes += bytes_[static_cast<size_t>(id)];
  }
  return replace_invalid_utf8(bytes);
}

TokenizerIdentity Gpt2BpeTokenizer::identity() const {
  return {{"class", "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText"},
          {"tokenizer_path", "GPT2BPETokenizer"},
          {"additional_special_tokens", python_text(options_.special_tokens)},
          {"vocab_file", options_.vocab_file},
          {"merges_file", options_.merge_file},
          {"use_fast", "True"},
          {"trust_remote_code", "False"},
          {"include_special_tokens", "True"},
          {"use_gigatoken", "False"}};
}

}  // namespace megatron
