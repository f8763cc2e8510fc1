#include "megatron/tokenizers/null_tokenizer.h"

#include <charconv>
#include <limits>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"

namespace megatron {
namespace {
constexpr std::string_view kWhiteSpace = "\t\n\v\f\r";

/// Python's int() forgives white space around a number, so that a text may end in a newline.
std::string_view strip(std::string_view word) {
  const size_t begin = word.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return {};
  return word.substr(begin, word.find_last_not_of(kWhiteSpace) - begin + 1);
}

TokenId parse(std::string_view word, int64_t vocab_size) {
  const std::string_view digits = strip(word);
  int64_t id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  require<DataError>(error == std::errc() && end == digits.data() + digits.size(),
                     "NullTokenizer: '{}' is not an integer; the text must be token ids separated by single spaces",
                     word.substr(0, 40));
  require<DataError>(id >= 0 && id < vocab_size,
                     "NullTokenizer: id {} is outside of the vocabulary of {} tokens (--vocab-size)", id, vocab_size);
  return static_cast<TokenId>(id);
}

class NumberEncoder final : public TextEncoder {
 public:
  explicit NumberEncoder(int64_t vocab_size) : vocab_size_(vocab_size) {}
  void append(std::string_view text, std::vector<TokenId>& ids) override {
    for (size_t begin = 0;;) {
      const size_t end = text.find(' ', begin);
      ids.push_back(parse(text.substr(begin, end - begin), vocab_size_));
      if (end == std::string_view::npos) return;
      begin = end + 1;
    }
  }

 private:
  int64_t vocab_size_;
};
}  // namespace

NullTokenizer::NullTokenizer(const Options& options) : options_(options) {
  require<ConfigError>(options.vocab_size > 0 && options.vocab_size <= std::numeric_limits<TokenId>::max(),
                       "NullTokenizer: --vocab-size is {}; it must be in [1, 2147483647]", options.vocab_size);
  require<ConfigError>(!options.eod || (*options.eod >= 0 && *options.eod < options.vocab_size),
                       "NullTokenizer: --null-tokenizer-eod-id {} is outside of the vocabulary of {} tokens",
                       options.eod.value_or(0), options.vocab_size);
  require<ConfigError>(std::in_range<TokenId>(options.pad),
                       "NullTokenizer: --null-tokenizer-pad-id {} has more than 32 bits", options.pad);
}

std::unique_ptr<TextEncoder> NullTokenizer::make_encoder() const {
  return std::make_unique<NumberEncoder>(options_.vocab_size);
}

std::string NullTokenizer::decode(std::span<const TokenId> ids) const {
  for (const TokenId id : ids) require_known(id);
  return joined(ids, " ");
}

std::optional<TokenId> NullTokenizer::eod() const {
  return static_cast<TokenId>(options_.eod.value_or(options_.vocab_size - 1));
}

TokenizerIdentity NullTokenizer::identity() const {
  TokenizerIdentity fields = {{"class", "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText"},
                              {"tokenizer_path", std::nullopt},
                              {"vocab_size", std::to_string(options_.vocab_size)}};
  if (options_.eod) fields.push_back({"eod_id", std::to_string(*options_.eod)});
  fields.push_back({"pad_id", std::to_string(options_.pad)});
  return fields;
}

}  // namespace megatron
