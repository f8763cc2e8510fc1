// Megatron's TikTokenizer.
#pragma once

#include "megatron/tokenizers/tiktoken_encoding.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// `--tokenizer-type TikTokenizer --tokenizer-model FILE`. With Megatron's JSON list the special tokens come first:
/// those given, then fillers <SPECIAL_k>; a token's id is its rank behind them, and </s> ends a document. With a
/// .tiktoken file, an extension, ids are ranks, the special tokens given follow them, and <|endoftext|>,
/// <|end_of_text|> or </s>, if it is among them, ends a document. Source: Megatron 0.16,
/// tokenizers/text/libraries/tiktoken_tokenizer.py.
class TiktokenTokenizer final : public Tokenizer {
 public:
  static constexpr int64_t kDefaultVocabSize = 131072, kDefaultNumSpecialTokens = 1000;
  struct Options {
    std::string path;
    /// v1 or v2 (default), Megatron's; r50k, cl100k, o200k or llama3, for .tiktoken files.
    std::optional<std::string> pattern = {};
    std::optional<int64_t> vocab_size = {};  ///< the JSON list is cut to it; default: kDefaultVocabSize
    int64_t num_special_tokens = kDefaultNumSpecialTokens;
    /// Default with Megatron's list: <unk> <s> </s> <mask> <pad> <cls> <sep>, which others must hold.
    std::vector<std::string> special_tokens = {};
  };
  /// @throw ConfigError for numbers, patterns or special tokens that do not fit; DataError as
  ///        `read_tiktoken_vocabulary`, or if the file has too few tokens.
  explicit TiktokenTokenizer(const Options& options);

  std::unique_ptr<TextEncoder> make_encoder() const override { return encoding_->make_encoder(); }
  /// Bytes that are not UTF-8 become U+FFFD, one for each maximal invalid part of the whole text.
  std::string decode(std::span<const TokenId> ids) const override;
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<TokenId> eod() const override { return eod_; }
  std::optional<TokenId> pad() const override { return pad_; }
  TokenizerIdentity identity() const override;
  std::vector<TokenizerFile> files() const override;

 private:
  void make_megatrons(std::vector<std::string> tokens, const std::string& pattern);
  void make_tiktokens(std::vector<std::string> tokens, const std::string& pattern);
  std::vector<std::string> filled_special_tokens() const;

  Options options_;
  std::string content_;  // of the file
  bool is_megatrons_ = false;
  std::unique_ptr<TiktokenEncoding> encoding_;
  int64_t vocab_size_ = 0;
  std::optional<TokenId> eod_, pad_;
};

}  // namespace megatron
