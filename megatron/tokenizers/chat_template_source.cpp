#include "megatron/tokenizers/chat_template_source.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "megatron/base/error.h"
#include "megatron/tokenizers/hugging_face/chat_resources.h"
#include "megatron/tokenizers/json_string.h"
#include "megatron/tokenizers/tokenizer_file.h"

namespace megatron {
namespace {

/// Only the files of HuggingFaceTokenizer, under all its names, say something about conversations.
hugging_face::ChatResources resources_of(const TokenizerOptions& tokenizer) {
  constexpr std::array kTypes = {"HuggingFaceTokenizer", "Llama3Tokenizer", "SFTTokenizer"};
  if (std::ranges::find(kTypes, tokenizer.type) == kTypes.end()) return {};
  return hugging_face::read_chat_resources(tokenizer.model);
}

std::string text_of(const std::string& chat_template) {
  if (std::filesystem::is_regular_file(chat_template)) return read_tokenizer_file("--chat-template", chat_template);
  require<ConfigError>(chat_template.find('{') != std::string::npos,
                       "--chat-template {}: there is no such file, and it is no template in Jinja", chat_template);
  return chat_template;
}

}  // namespace

ChatTemplateSource find_chat_template(const TokenizerOptions& tokenizer,
                                      const std::optional<std::string>& chat_template) {
  const hugging_face::ChatResources resources = resources_of(tokenizer);
  require<ConfigError>(chat_template || resources.chat_template,
                       "the tokenizer has no chat template. Give one with --chat-template");
  ChatTemplateSource source{.text = chat_template ? text_of(*chat_template) : *resources.chat_template,
                            .variables = {}};
  for (const auto& [name, text] : resources.special_tokens) source.variables.emplace_back(name, json_string(text));
  return source;
}

}  // namespace megatron
