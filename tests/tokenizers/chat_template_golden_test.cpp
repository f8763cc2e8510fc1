// What transformers' apply_chat_template renders, from tests/golden/tokenizers/chat.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <fstream>
#include <iterator>

#include "megatron/base/error.h"
#include "megatron/tokenizers/chat_template/chat_template.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {
using Json = simdjson::dom::element;

class ChatTemplateGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(ChatTemplateGolden, TextsAreThoseOfTheReference) {
  const std::string stem = testing::golden_path("tokenizers/chat/" + GetParam());
  std::ifstream source(stem + ".jinja", std::ios::binary), rows(stem + ".jsonl");
  const ChatTemplate chat_template(std::string(std::istreambuf_iterator<char>(source), {}));
  simdjson::dom::parser parser;
  int64_t num_rows = 0;
  for (std::string line; std::getline(rows, line); ++num_rows) {
    const Json row = parser.parse(line).value();
    ChatTemplate::Input input{.messages = simdjson::minify(row["messages"]),
                              .add_generation_prompt = bool{row["add_generation_prompt"]},
                              .variables = {{"bos_token", "\"<s>\""}, {"eos_token", "\"</s>\""}}};
    simdjson::dom::object variables;
    if (!row["kwargs"].get(variables))
      for (const auto& [name, value] : variables) input.variables.emplace_back(name, simdjson::minify(value));
    std::string_view expected;
    if (row["text"].get(expected))
      EXPECT_THROW(chat_template.render(input), DataError) << line;
    else
      EXPECT_EQ(chat_template.render(input), expected) << line;
  }
  EXPECT_GT(num_rows, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ChatTemplateGolden,
                         ::testing::Values("chatml", "llama3_like", "mistral_like", "reasoning_like", "tools_like"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace megatron
