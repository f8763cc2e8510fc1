// The text of a continuation, as it grows by tokens.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

class GeneratedText {
 public:
  /// @param stop  texts that end the continuation. Both must outlive this.
  GeneratedText(const Tokenizer& tokenizer, std::vector<TokenId> prompt, std::span<const std::string> stop);

  /// @return true if the text now ends: before the first of the stop words, which it does not have.
  bool add(TokenId id);
  const std::string& text() const { return text_; }
  /// Its first bytes that no further token changes: a character may be incomplete, or a stop word have begun.
  size_t num_settled() const;

 private:
  const Tokenizer& tokenizer_;
  std::span<const std::string> stop_;
  std::vector<TokenId> ids_;
  size_t num_decoded_;
  std::string text_;
};

}  // namespace megatron
