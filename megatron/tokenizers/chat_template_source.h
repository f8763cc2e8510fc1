// Finds the chat template of a tokenizer.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/tokenizers/tokenizer_factory.h"

namespace megatron {

struct ChatTemplateSource {
  std::string text;
  /// Names and JSON of the special tokens that templates use, such as bos_token and "\"<s>\"".
  std::vector<std::pair<std::string, std::string>> variables;
};

/// @param chat_template  --chat-template: a template or the name of its file; by default that of --tokenizer-model.
/// @throw ConfigError if there is none, and DataError for damaged files.
ChatTemplateSource find_chat_template(const TokenizerOptions& tokenizer,
                                      const std::optional<std::string>& chat_template);

}  // namespace megatron
