// Stands in for sentence_piece_tokenizer.cpp in a build without the library.
#include "megatron/base/error.h"
#include "megatron/tokenizers/sentence_piece_tokenizer.h"

namespace megatron {

class SentencePieceTokenizer::Model {};

bool has_sentence_piece() { return false; }

SentencePieceTokenizer::SentencePieceTokenizer(const Options& options) : options_(options) {
  throw NotSupported(
      "this build has no SentencePiece. Install it with: apt-get install libsentencepiece-dev, and build again");
}
SentencePieceTokenizer::~SentencePieceTokenizer() = default;

// The constructor throws: none of these is called.
std::unique_ptr<TextEncoder> SentencePieceTokenizer::make_encoder() const { return nullptr; }
std::string SentencePieceTokenizer::decode(std::span<const TokenId>) const { return ""; }
int64_t SentencePieceTokenizer::vocab_size() const { return 0; }
std::optional<TokenId> SentencePieceTokenizer::eod() const { return std::nullopt; }
std::optional<TokenId> SentencePieceTokenizer::pad() const { return std::nullopt; }
TokenizerIdentity SentencePieceTokenizer::identity() const { return {}; }
std::vector<TokenizerFile> SentencePieceTokenizer::files() const { return {}; }

}  // namespace megatron
