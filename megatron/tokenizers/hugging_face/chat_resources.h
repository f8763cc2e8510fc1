// The settings of conversations in the files of a Hugging Face tokenizer.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace megatron::hugging_face {

struct ChatResources {
  /// The template: chat_template.jinja, or else chat_template of tokenizer_config.json, of several the one named
  /// default.
  std::optional<std::string> chat_template;
  /// Names and texts of special tokens, such as bos_token and "<s>", which templates use as variables.
  std::vector<std::pair<std::string, std::string>> special_tokens;
};

/// @param path  the folder, or its tokenizer.json. @throw DataError if a file is damaged.
ChatResources read_chat_resources(const std::string& path);

}  // namespace megatron::hugging_face
