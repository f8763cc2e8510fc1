#include "megatron/tokenizers/chat_template/chat_template.h"

#include <algorithm>

#include "megatron/tokenizers/chat_template/builtins.h"
#include "megatron/tokenizers/chat_template/interpreter.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {
using chat_template::Dict;
using chat_template::List;
using chat_template::Value;

void set(Dict& dict, const std::string& key, const Value& value) {
  const auto place = std::ranges::find(dict, key, &std::pair<std::string, Value>::first);
  if (place != dict.end())
    place->second = value;
  else
    dict.emplace_back(key, value);
}

/// Changes a message as transformers 5 does: keys with null go, and the reasoning has all of its names.
Value prepared(const Value& message) {
  if (!message.is_dict()) return message;
  Dict result;
  for (const auto& [key, value] : message.dict())
    if (!value.is_none()) result.emplace_back(key, value);
  const Value kept(result);
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* reasoning = kept.find(name);
    if (reasoning == nullptr) continue;
    if (kept.find("thinking") == nullptr) result.insert(result.begin(), {"thinking", *reasoning});
    set(result, "reasoning_content", *reasoning);
    break;
  }
  return result;
}

Value prepared_messages(const std::string& json) {
  List messages;
  for (const Value& message : chat_template::elements_of(chat_template::parse_json(json, "messages")))
    messages.push_back(prepared(message));
  return messages;
}
}  // namespace

ChatTemplate::ChatTemplate(std::string_view source) {
  require_utf8(source);
  body_ = chat_template::parse_template(source);
}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const Input& input) const {
  chat_template::Dict variables;
  for (const auto& [name, json] : input.variables) variables.emplace_back(name, chat_template::parse_json(json, name));
  variables.emplace_back("messages", prepared_messages(input.messages));
  variables.emplace_back("add_generation_prompt", input.add_generation_prompt);
  return chat_template::render(body_, variables);
}

}  // namespace megatron
