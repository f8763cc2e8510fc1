#include <string>
#include <vector>

#include "megatron/tokenizers/chat_template/chat_template.h"
#include "megatron/tokenizers/hugging_face/tokenizer_json.h"
#include "tests/fuzz/fuzz_targets.h"

namespace megatron::testing {
namespace {

constexpr std::string_view kManyScripts =
    "Hello, world! It's 3.14  \t\n\n caf\u00e9 cafe\u0301 \u4f60\u597d \u0928\u092e\u0938\u094d\u0924\u0947 "
    "\u05e9\u05dc\u05d5\u05dd \U0001f469\u200d\U0001f680 \ufb01 <s></s><|endoftext|>[MASK] aaaaaaaa 0123456789";

constexpr const char* kConversation =
    R"([{"role": "system", "content": " Be brief. "},
        {"role": "user", "content": "Weather in Bern?"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function",
          "function": {"name": "weather", "arguments": {"city": "Bern", "days": 1.5, "units": null}}}]},
        {"role": "tool", "content": "rain"},
        {"role": "assistant", "content": "<think>\nwet\n</think>\n\nIt rains."}])";
constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters":
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])";

std::string_view text_of(std::span<const std::byte> input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

}  // namespace

void fuzz_tokenizer_json(std::span<const std::byte> input) {
  const hugging_face::TokenizerJson json(text_of(input), "input", {});
  std::vector<TokenId> ids;
  hugging_face::TextPipeline(json).append(kManyScripts, ids);
  json.decode(ids, true);
  json.decode(ids, false);
}

void fuzz_chat_template(std::span<const std::byte> input) {
  const ChatTemplate chat(text_of(input));
  for (const bool add_generation_prompt : {false, true})
    chat.render({.messages = kConversation,
                 .add_generation_prompt = add_generation_prompt,
                 .variables = {{"bos_token", R"("<s>")"}, {"eos_token", R"("</s>")"}, {"tools", kTools}}});
}

}  // namespace megatron::testing
