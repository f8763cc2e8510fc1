// Templates render as transformers' apply_chat_template does (tests/golden/tokenizers/chat).
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "megatron/base/error.h"
#include "megatron/tokenizers/chat_template/chat_template.h"
#include "tests/testing/source_tree.h"
#include "tests/tokenizers/golden_rows.h"

namespace megatron {
namespace {

class ChatTemplateGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(ChatTemplateGolden, TextsAreThoseOfTheReference) {
  const std::string stem = testing::golden_path("tokenizers/chat/" + GetParam());
  std::ifstream source(stem + ".jinja", std::ios::binary);
  const ChatTemplate chat_template(std::string(std::istreambuf_iterator<char>(source), {}));
  testing::for_each_row(stem + ".jsonl", [&](testing::JsonRow row) {
    ChatTemplate::Input input{.messages = simdjson::minify(row["messages"]),
                              .add_generation_prompt = bool{row["add_generation_prompt"]},
                              .variables = {{"bos_token", "\"<s>\""}, {"eos_token", "\"</s>\""}}};
    simdjson::dom::object variables;
    if (!row["kwargs"].get(variables))
      for (const auto& [name, value] : variables) input.variables.emplace_back(name, simdjson::minify(value));
    std::string_view expected;
    if (row["text"].get(expected))
      EXPECT_THROW(chat_template.render(input), DataError) << simdjson::minify(row);
    else
      EXPECT_EQ(chat_template.render(input), expected) << simdjson::minify(row);
  });
}

INSTANTIATE_TEST_SUITE_P(All, ChatTemplateGolden,
                         ::testing::Values("chatml", "llama3_like", "mistral_like", "reasoning_like", "tools_like",
                                           "headers_family", "thinking_family", "turns_family", "instructions_family",
                                           "sections_family"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace megatron
