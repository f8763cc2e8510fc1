// GPT-2's byte-level byte-pair encoding.
#pragma once

#include <array>
#include <unordered_map>

#include "megatron/tokenizers/bpe_merges.h"
#include "megatron/tokenizers/regex_splitter.h"
#include "megatron/tokenizers/special_tokens.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// `--tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt`.
/// A pattern cuts the text into words, a word is its UTF-8 bytes, and neighbours are joined by rank.
/// Source: Radford et al. 2019, section 2.2; Sennrich et al. 2016 (arXiv:1508.07909). Ids are those of Hugging Face's
/// tokenizers 0.23 with the same files, special tokens inside of the text included.
class Gpt2BpeTokenizer final : public Tokenizer {
 public:
  struct Options {
    std::string vocab_file, merge_file;
    /// Recognised in the text besides `eod`. Those that the vocabulary has not get the ids that follow it.
    std::vector<std::string> special_tokens = {};
    /// Must be in the vocabulary.
    std::string eod = "<|endoftext|>";
  };
  /// @throw IoError, DataError as `read_bpe_vocabulary`; DataError if a byte or `eod` has no token; ConfigError if a
  ///        special token is given twice.
  explicit Gpt2BpeTokenizer(const Options& options);

  std::unique_ptr<TextEncoder> make_encoder() const override;
  /// Bytes that are not UTF-8 become U+FFFD, one for each maximal invalid part.
  std::string decode(std::span<const TokenId> ids) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(bytes_.size()); }
  std::optional<TokenId> eod() const override { return eod_; }
  TokenizerIdentity identity() const override;
  std::vector<TokenizerFile> files() const override {
    return {{"vocab.json", vocab_json_}, {"merges.txt", merge_lines_}};
  }

 private:
  friend class Gpt2BpeEncoder;
  void add_special_tokens(const std::unordered_map<std::string, TokenId>& ids);

  Options options_;
  RegexPattern pattern_;
  SpecialTokens special_tokens_;
  BpeMerges merges_;
  std::array<TokenId, 256> byte_ids_;
  std::vector<std::string> bytes_;  // of each token
  TokenId eod_;
  std::string vocab_json_, merge_lines_;  // of files()
};

}  // namespace megatron
