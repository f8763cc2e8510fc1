// BERT's WordPiece vocabularies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

namespace hugging_face {
class TokenizerJson;
}

/// `--tokenizer-type BertWordPieceLowerCase` or `BertWordPieceCase` `--vocab-file vocab.txt`, a token a line. Each text
/// stands between [CLS] and [SEP], as Megatron's do since 0.14; [SEP] ends a document. The one with case has the tokens
/// <extra_id_0> to <extra_id_99> behind its vocabulary. Ids are those of transformers' BertTokenizer.
class BertWordPieceTokenizer final : public Tokenizer {
 public:
  struct Options {
    std::string vocab_file;
    bool lower_case = true;
    bool include_special_tokens = true;            ///< [CLS] and [SEP]
    std::vector<std::string> special_tokens = {};  ///< recognised in the text besides BERT's own
  };
  /// @throw DataError if the file is missing, holds a token twice or lacks [CLS], [SEP] or [UNK].
  explicit BertWordPieceTokenizer(const Options& options);
  ~BertWordPieceTokenizer() override;

  std::unique_ptr<TextEncoder> make_encoder() const override;
  std::string decode(std::span<const TokenId> ids) const override;
  int64_t vocab_size() const override;
  std::optional<TokenId> eod() const override { return eod_; }
  std::optional<TokenId> pad() const override { return pad_; }
  std::optional<TokenId> id_of(std::string_view token) const override;
  TokenizerIdentity identity() const override;
  std::vector<TokenizerFile> files() const override { return {{"vocab.txt", content_}}; }

 private:
  std::vector<std::string> all_special_tokens() const;

  Options options_;
  std::string content_;  // of the file
  std::unique_ptr<hugging_face::TokenizerJson> json_;
  std::optional<TokenId> eod_, pad_;
};

}  // namespace megatron
