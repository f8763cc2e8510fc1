#include "megatron/tokenizers/byte_level_tokenizer.h"

namespace megatron {
namespace {
class ByteEncoder final : public TextEncoder {
 public:
  void append(std::string_view text, std::vector<TokenId>& ids) override {
    ids.reserve(ids.size() + text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
};
}  // namespace

std::unique_ptr<TextEncoder> ByteLevelTokenizer::make_encoder() const { return std::make_unique<ByteEncoder>(); }

std::string ByteLevelTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const TokenId id : ids) {
    require_known(id);
    if (id != kEndOfDocument) text.push_back(static_cast<char>(id));
  }
  return text;
}

TokenizerIdentity ByteLevelTokenizer::identity() const {
  return {{"class", "ByteLevelTokenizer"}, {"tokenizer_path", std::nullopt}};
}

}  // namespace megatron
