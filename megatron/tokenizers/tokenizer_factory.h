// Tokenizers by name.
#pragma once

#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// The tokenizer flags of a command line; an empty string is a flag that was not given.
struct TokenizerOptions {
  std::string type;                                         ///< --tokenizer-type
  std::string vocab_file = {};                              ///< --vocab-file
  std::string merge_file = {};                              ///< --merge-file
  std::string model = {};                                   ///< --tokenizer-model
  std::optional<int64_t> vocab_size = {};                   ///< --vocab-size: at least as many entries as there are
  std::vector<std::string> special_tokens = {};             ///< --tokenizer-special-tokens
  std::optional<int64_t> null_eod = {};                     ///< --null-tokenizer-eod-id
  int64_t null_pad = -1;                                    ///< --null-tokenizer-pad-id
  bool hf_no_include_special_tokens = false;                ///< --tokenizer-hf-no-include-special-tokens
  std::optional<std::string> tiktoken_pattern = {};         ///< --tiktoken-pattern
  std::optional<int64_t> tiktoken_num_special_tokens = {};  ///< --tiktoken-num-special-tokens
  bool sentencepiece_legacy = false;                        ///< --tokenizer-sentencepiece-legacy
  bool sentencepiece_ignore_extra_whitespaces = true;       ///< --no-tokenizer-sentencepiece-ignore-extra-whitespaces
};

/// Says whether a type has a use for a flag; false for an unknown type.
bool tokenizer_reads(std::string_view type, std::string_view flag);

/// The files that --tokenizer-model stands for: itself, or those of a tokenizer in a folder.
std::vector<std::string> tokenizer_model_files(const std::string& path);

/// Names of `--tokenizer-type` that `make_tokenizer` knows.
std::vector<std::string> tokenizer_types();

/// @throw ConfigError naming all flags that the type needs and lacks, or has no use for; NotSupported for a type of
///        Megatron's that does not exist here; and what the constructor of the type throws.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options);

}  // namespace megatron
