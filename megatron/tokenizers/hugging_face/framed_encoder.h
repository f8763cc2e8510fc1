// Text to ids by a tokenizer.json, with the tokens around it.
#pragma once

#include "megatron/tokenizers/hugging_face/tokenizer_json.h"

namespace megatron::hugging_face {

/// Refers to the TokenizerJson, which must outlive it.
class FramedEncoder final : public TextEncoder {
 public:
  FramedEncoder(const TokenizerJson& json, bool include_special_tokens)
      : pipeline_(json), frame_(include_special_tokens ? json.frame() : SpecialTokenFrame{}) {}

  void append(std::string_view text, std::vector<TokenId>& ids) override {
    ids.insert(ids.end(), frame_.prefix.begin(), frame_.prefix.end());
    pipeline_.append(text, ids);
    ids.insert(ids.end(), frame_.suffix.begin(), frame_.suffix.end());
  }

 private:
  TextPipeline pipeline_;
  SpecialTokenFrame frame_;
};

}  // namespace megatron::hugging_face
