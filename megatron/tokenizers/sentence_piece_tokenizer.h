// SentencePiece models.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// `--tokenizer-type SentencePieceTokenizer --tokenizer-model FILE`, also under the names GPTSentencePieceTokenizer and
/// Llama2Tokenizer, through the library libsentencepiece. No BOS is added.
/// Source: Megatron 0.16, tokenizers/text/libraries/sentencepiece_tokenizer.py.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  struct Options {
    std::string path;
    /// Recognised in the text; those that the model has not get the ids that follow. Only with `legacy`.
    std::vector<std::string> special_tokens = {};
    bool legacy = false;
    /// False: keeps repeated, leading and trailing spaces although the model drops them.
    bool ignore_extra_whitespaces = true;
  };
  /// @throw NotSupported in a build without the library; DataError if the file is missing or no model; ConfigError for
  ///        special tokens without `legacy`.
  explicit SentencePieceTokenizer(const Options& options);
  ~SentencePieceTokenizer() override;

  std::unique_ptr<TextEncoder> make_encoder() const override;
  std::string decode(std::span<const TokenId> ids) const override;
  int64_t vocab_size() const override;
  std::optional<TokenId> eod() const override;
  std::optional<TokenId> pad() const override;
  TokenizerIdentity identity() const override;
  std::vector<TokenizerFile> files() const override;

 private:
  friend class SentencePieceEncoder;
  class Model;
  Options options_;
  std::unique_ptr<Model> model_;
};

/// Says whether this build has the library.
bool has_sentence_piece();

}  // namespace megatron
