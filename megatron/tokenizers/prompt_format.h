// How a conversation becomes the text that a model is fine-tuned on.
#pragma once

#include <array>
#include <string_view>
#include <utility>

namespace megatron {

/// --sft-tokenizer-prompt-format. The first four are Megatron's.
enum class PromptFormat {
  kNemotronHAligned,  ///< <SPECIAL_10>System ... <SPECIAL_11>User ... <SPECIAL_11>Assistant ...
  kNemotronNanoV2,    ///< the same with <SPECIAL_12> behind answers; the first 3 tokens of an answer are not trained
  kIdentity,          ///< the contents, one after the other
  kDefault,           ///< the tokenizer's chat template; all tokens are trained
  kChatTemplate       ///< the tokenizer's chat template; only what the assistant writes is trained
};

constexpr std::array<std::pair<PromptFormat, std::string_view>, 5> names_of_enum(PromptFormat) {
  return {{{PromptFormat::kNemotronHAligned, "nemotron-h-aligned"},
           {PromptFormat::kNemotronNanoV2, "nemotron-nano-v2"},
           {PromptFormat::kIdentity, "identity"},
           {PromptFormat::kDefault, "default"},
           {PromptFormat::kChatTemplate, "chat-template"}}};
}

/// True if the format is the chat template of the model.
constexpr bool has_chat_template(PromptFormat format) {
  return format == PromptFormat::kDefault || format == PromptFormat::kChatTemplate;
}

}  // namespace megatron
