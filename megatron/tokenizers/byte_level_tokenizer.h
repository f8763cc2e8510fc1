// Bytes as tokens: needs no vocabulary file.
#pragma once

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// `--tokenizer-type ByteLevelTokenizer`, a type of our own: ids 0 .. 255 are the bytes of the text, 256 ends a
/// document. Any bytes are accepted and come back unchanged; the end of document decodes to nothing.
class ByteLevelTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kEndOfDocument = 256;

  std::unique_ptr<TextEncoder> make_encoder() const override;
  std::string decode(std::span<const TokenId> ids) const override;
  int64_t vocab_size() const override { return kEndOfDocument + 1; }
  std::optional<TokenId> eod() const override { return kEndOfDocument; }
  TokenizerIdentity identity() const override;
};

}  // namespace megatron
