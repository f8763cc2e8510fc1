#include "commands/chat_lines.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"

namespace megatron {
using Json = nlohmann::ordered_json;

ChatLines::ChatLines(const ChatTemplateSource& source, bool add_generation_prompt)
    : template_(source.text), special_tokens_(source.variables), add_generation_prompt_(add_generation_prompt) {}

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
