// Tokenizers in Hugging Face's format.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

namespace hugging_face {
class TokenizerJson;
}

/// `--tokenizer-type HuggingFaceTokenizer --tokenizer-model PATH`, also under the names Llama3Tokenizer and
/// SFTTokenizer: a folder with a tokenizer.json, or the file itself. tokenizer_config.json and special_tokens_map.json
/// beside it name the tokens that end a document and pad. Ids and text are those of Hugging Face's tokenizers 0.23;
/// what the files hold that is unknown here is an error, never ignored.
class HuggingFaceTokenizer final : public Tokenizer {
 public:
  struct Options {
    std::string path;
    /// Says whether encoding adds the tokens of the post-processor, such as BOS, as Megatron does by default.
    bool include_special_tokens = true;
    /// Recognised in the text besides those of the file. Those that it has not get the ids that follow.
    std::vector<std::string> special_tokens = {};
  };
  /// @throw DataError if a file is missing or damaged or the files contradict each other; NotSupported naming what
  ///        they hold that is unknown.
  explicit HuggingFaceTokenizer(const Options& options);
  ~HuggingFaceTokenizer() override;

  /// The files that `path` stands for: itself, or those in a folder that are there.
  static std::vector<std::string> paths(const std::string& path);

  std::unique_ptr<TextEncoder> make_encoder() const override;
  std::string decode(std::span<const TokenId> ids) const override;
  int64_t vocab_size() const override;
  std::optional<TokenId> eod() const override { return eod_; }
  std::optional<TokenId> pad() const override { return pad_; }
  std::optional<TokenId> id_of(std::string_view token) const override;
  /// The added tokens that the file or the options mark as special.
  std::vector<TokenId> special_ids() const override;
  TokenizerIdentity identity() const override;
  std::vector<TokenizerFile> files() const override { return files_; }

 private:
  void read_roles(const std::string& folder);

  Options options_;
  std::vector<TokenizerFile> files_;
  std::unique_ptr<hugging_face::TokenizerJson> json_;
  std::optional<TokenId> eod_, pad_;
};

}  // namespace megatron
