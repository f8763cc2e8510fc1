// Text that already is numbers.
#pragma once

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// `--tokenizer-type NullTokenizer`: the text holds the ids in decimal, separated by single spaces.
/// Source: Megatron 0.20, tokenizers/text/libraries/null_tokenizer.py. Unlike there, an id outside of the vocabulary is
/// an error: the embedding has no row for it.
class NullTokenizer final : public Tokenizer {
 public:
  struct Options {
    int64_t vocab_size;
    std::optional<int64_t> eod = {};  ///< default: vocab_size - 1
    int64_t pad = -1;
  };
  /// @throw ConfigError if vocab_size is not in [1, 2^31) eod is outside of the vocabulary or pad
  ///        has more than 32 bits.
  explicit NullTokenizer(const Options& options);

  std::unique_ptr<TextEncoder> make_encoder() const override;
  std::string decode(std::span<const TokenId> ids) const override;
  int64_t vocab_size() const override { return options_.vocab_size; }
  std::optional<TokenId> eod() const override;
  std::optional<TokenId> pad() const override { return static_cast<TokenId>(options_.pad); }
  TokenizerIdentity identity() const override;

 private:
  Options options_;
};

}  // namespace megatron
