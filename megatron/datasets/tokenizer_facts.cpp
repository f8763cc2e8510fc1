#include "megatron/datasets/tokenizer_facts.h"

namespace megatron {

TokenizerFacts facts_of(const Tokenizer& tokenizer) {
  TokenizerFacts facts;
  facts.vocab_size = tokenizer.vocab_size();
  facts.identity = tokenizer.identity();
  facts.pad = tokenizer.pad();
  if (tokenizer.eod().has_value()) {
    facts.eod = *tokenizer.eod();
    facts.special_tokens.push_back(facts.eod);
  }
  return facts;
}

}  // namespace megatron
