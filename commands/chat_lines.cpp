#include "commands/chat_lines.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/tokenizers/hugging_face/chat_resources.h"
#include "megatron/tokenizers/json_string.h"
#include "megatron/tokenizers/tokenizer_file.h"

namespace megatron {
namespace {
using Json = nlohmann::ordered_json;

/// Only the files of HuggingFaceTokenizer say something about conversations.
hugging_face::ChatResources resources_of(const TokenizerOptions& tokenizer) {
  if (tokenizer.type != "HuggingFaceTokenizer" && tokenizer.type != "Llama3Tokenizer") return {};
  return hugging_face::read_chat_resources(tokenizer.model);
}

std::string source_of(const TokenizerOptions& tokenizer, const std::optional<std::string>& chat_template) {
  if (!chat_template) {
    const auto own = resources_of(tokenizer).chat_template;
    require<ConfigError>(own.has_value(), "--chat: the tokenizer has no chat template. Give one with --chat-template");
    return *own;
  }
  if (std::filesystem::is_regular_file(*chat_template)) return read_tokenizer_file("--chat-template", *chat_template);
  require<ConfigError>(chat_template->find('{') != std::string::npos,
                       "--chat-template {}: there is no such file, and it is no template in Jinja", *chat_template);
  return *chat_template;
}
}  // namespace

ChatLines::ChatLines(const TokenizerOptions& tokenizer, const std::optional<std::string>& chat_template,
                     bool add_generation_prompt)
    : template_(source_of(tokenizer, chat_template)), add_generation_prompt_(add_generation_prompt) {
  for (const auto& [name, text] : resources_of(tokenizer).special_tokens)
    special_tokens_.emplace_back(name, json_string(text));
}

std::string ChatLines::text_of(std::string_view line) const {
  const Json json = Json::parse(line, nullptr, false);
  require<DataError>(json.is_object() && json.contains("messages") && json["messages"].is_array(),
                     "the line is not a JSON object whose key messages has a list");
  ChatTemplate::Input input{.messages = json["messages"].dump(),
                            .add_generation_prompt = add_generation_prompt_,
                            .variables = special_tokens_};
  for (const auto& [name, value] : json.items())
    if (name != "messages" && name != "add_generation_prompt") input.variables.emplace_back(name, value.dump());
  return template_.render(input);
}

}  // namespace megatron
