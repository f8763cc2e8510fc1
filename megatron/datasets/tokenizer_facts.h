// Properties of a tokenizer that datasets need.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Properties that determine samples and names of cache files.
struct TokenizerFacts {
  /// Stored tokens must be below; 0 leaves them unchecked. Not the padded size: padding of the vocabulary has no logit.
  int64_t vocab_size = 0;
  /// Ends a document.
  int64_t eod = -1;
  /// Pads short samples; positions whose label is this are not trained. Nothing: no token of the data is padding.
  std::optional<int64_t> pad;
  /// The other special tokens that the tokenizer declares (all but its padding entry), or eos and eod if it declares
  /// none. A padding token among them is ambiguous: masking it would mask them too.
  std::vector<int64_t> special_tokens;
  /// The tokenizer's entry in cache descriptions.
  TokenizerIdentity identity;
};

TokenizerFacts facts_of(const Tokenizer& tokenizer);

}  // namespace megatron
