// Lines of JSON that hold conversations.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/tokenizers/chat_template/chat_template.h"
#include "megatron/tokenizers/chat_template_source.h"

namespace megatron {

/// Renders {"messages": [...], ...} by a chat template; further keys, such as tools, are its variables.
class ChatLines {
 public:
  /// @throw what reading the template throws.
  ChatLines(const ChatTemplateSource& source, bool add_generation_prompt);
  /// @throw DataError if the line is no such object or the template refuses it.
  std::string text_of(std::string_view line) const;

 private:
  ChatTemplate template_;
  std::vector<std::pair<std::string, std::string>> special_tokens_;  // names and JSON
  bool add_generation_prompt_;
};

}  // namespace megatron
