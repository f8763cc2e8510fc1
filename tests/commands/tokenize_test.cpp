#include "commands/tokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "commands/exit_code.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr int kUsageStatus = static_cast<int>(ExitCode::kUsage), kDataStatus = static_cast<int>(ExitCode::kData);

class Tokenize : public ::testing::Test {
 protected:
  int run(Words words, const std::string& type = "ByteLevelTokenizer") {
    words.insert(words.end(), {"--tokenizer-type", type});
    std::ostringstream out, err;
    const int status = tokenize_command(words, out, err);
    out_ = out.str(), err_ = err.str();
    return status;
  }
  std::string written(const std::string& name, const std::string& content) {
    std::ofstream(scratch_.file(name), std::ios::binary) << content;
    return scratch_.file(name);
  }

  const testing::ScratchDirectory scratch_;
  std::string out_, err_;
};

TEST_F(Tokenize, PrintsTheIdsOfATextAndTheTextOfIds) {
  EXPECT_EQ(run({"--text", "Hi"}), 0) << err_;
  EXPECT_EQ(out_, "72 105\n");
  EXPECT_EQ(run({"--text", "72 105", "--decode"}), 0) << err_;
  EXPECT_EQ(out_, "Hi\n");
  EXPECT_EQ(run({"--text", "\"\n", "--json"}), 0) << err_;
  EXPECT_EQ(out_, "{\"ids\": [34, 10], \"decoded\": \"\\\"\\u000a\"}\n");
}

TEST_F(Tokenize, TakesTheLinesOfFilesAsTextOrJsonByTheirName) {
  const std::string text = written("a.txt", "{}\n\nab\n"), lines = written("b.jsonl", "{\"text\": \"\\u0061\\n\"}\n");
  EXPECT_EQ(run({"--input", text, lines}), 0) << err_;
  EXPECT_EQ(out_, "123 125\n\n97 98\n97 10\n");
  EXPECT_EQ(run({"--input", written("c.txt", "{\"x\": \"b\"}"), "--input-format", "jsonl", "--json-key", "x"}), 0)
      << err_;
  EXPECT_EQ(out_, "98\n");
}

TEST_F(Tokenize, DecodesWhatItPrinted) {
  const std::string text = "caf\u00e9  \u65e5\u672c\t<|eot_id|>!";
  const Words llama = {"--tokenizer-model", testing::golden_path("tokenizers/hf/llama3.json"),
                       "--tokenizer-hf-no-include-special-tokens"};
  Words words = llama;
  words.insert(words.end(), {"--json", "--text", text});
  EXPECT_EQ(run(words, "HuggingFaceTokenizer"), 0) << err_;
  words = llama;
  words.insert(words.end(), {"--decode", "--input", written("ids.jsonl", out_)});
  EXPECT_EQ(run(words, "HuggingFaceTokenizer"), 0) << err_;
  EXPECT_EQ(out_, text + "\n");
}

TEST_F(Tokenize, RendersConversationsByTheTemplateOfTheTokenizersFolder) {
  std::filesystem::copy_file(testing::golden_path("tokenizers/hf/llama3.json"), scratch_.file("tokenizer.json"));
  written(
      "tokenizer_config.json",
      R"({"bos_token": "<|begin_of_text|>", "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.content }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}!{% endif %}"})");
  const std::string chats = written("chats.jsonl", R"({"messages": [{"role": "user", "content": "hi"}]})");
  Words words = {"--tokenizer-model", scratch_.path(), "--chat", "--input", chats, "--json"};
  EXPECT_EQ(run(words, "HuggingFaceTokenizer"), 0) << err_;
  EXPECT_THAT(out_, HasSubstr(R"("decoded": "<|begin_of_text|>hi<|eot_id|>"})")) << "one BOS alone";
  words.push_back("--add-generation-prompt");
  EXPECT_EQ(run(words, "HuggingFaceTokenizer"), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("<|eot_id|>!"));
  EXPECT_EQ(run({"--chat", "--chat-template", "{{ messages[0].content }}", "--input", chats}), 0) << err_;
  EXPECT_EQ(out_, "104 105\n");
  EXPECT_EQ(run({"--chat", "--input", chats}), kUsageStatus) << "bytes have no template";
  EXPECT_EQ(run({"--chat", "--chat-template", "{{ 1 }}", "--input", written("bad.jsonl", "{}\n")}), kDataStatus);
  EXPECT_THAT(err_, HasSubstr("bad.jsonl:1: the line is not a JSON object whose key messages has a list"));
}

TEST_F(Tokenize, NamesFileAndLineOfBadInput) {
  const auto error = [&](const std::string& name, const std::string& content, Words words = {}) {
    words.insert(words.end(), {"--input", written(name, content)});
    EXPECT_EQ(run(words), kDataStatus);
    return err_;
  };
  EXPECT_THAT(error("a.jsonl", "{\"text\": \"a\"}\n{\"txt\": 1}\n"),
              HasSubstr("a.jsonl:2: the object has no key 'text'"));
  EXPECT_THAT(error("a.jsonl", "{\"text\": 1}\n"), HasSubstr("a.jsonl:1: the value of 'text' is not a string"));
  EXPECT_THAT(error("a.jsonl", "x\n"), HasSubstr("a.jsonl:1: the line is not a JSON object"));
  EXPECT_THAT(error("a.txt", "1\n2 x\n", {"--decode"}), HasSubstr("a.txt:2: 'x' is not a token id"));
  EXPECT_THAT(error("a.txt", "999\n", {"--decode"}), HasSubstr("a.txt:1: token id 999 is outside"));
  EXPECT_THAT(error("a.jsonl", "{\"ids\": [1.5]}\n", {"--decode"}), HasSubstr("a.jsonl:1: 1.5 is not a token id"));
  EXPECT_EQ(run({"--input", "/nowhere"}), kDataStatus);
}

TEST_F(Tokenize, ReportsAllWrongFlagsAtOnce) {
  EXPECT_EQ(run({"--text", "a", "--input", "b", "--tokenizer-metadata", "--decode", "--json-key", "k"}), kUsageStatus);
  for (const char* text :
       {"--text and --input: give one", "--tokenizer-metadata: the type and its flags", "--json-key: --decode"})
    EXPECT_THAT(err_, HasSubstr(text));
  std::ostringstream out, err;
  EXPECT_EQ(tokenize_command({"--text", "a"}, out, err), kUsageStatus);
  EXPECT_THAT(err.str(), HasSubstr("--tokenizer-type is missing: one of GPT2BPETokenizer"));
}

TEST_F(Tokenize, FlagsOfConversationsNeedChat) {
  EXPECT_EQ(run({"--text", "a", "--chat-template", "x", "--add-generation-prompt"}), kUsageStatus);
  EXPECT_THAT(err_, HasSubstr("--chat-template needs --chat"));
  EXPECT_THAT(err_, HasSubstr("--add-generation-prompt needs --chat"));
}

TEST_F(Tokenize, FlagsOfMegatronWithoutEffectAreAcceptedAndReported) {
  EXPECT_EQ(run({"--text", "a", "--vocab-extra-ids", "0", "--trust-remote-code"}), 0);
  EXPECT_THAT(err_, HasSubstr("--vocab-extra-ids has no effect: Megatron 0.20 reads it nowhere"));
  EXPECT_THAT(err_, HasSubstr("--trust-remote-code has no effect: no Python code is run"));
}

TEST_F(Tokenize, HelpNamesFlagsAndShowsExamples) {
  std::ostringstream out, err;
  EXPECT_EQ(tokenize_command({"--help"}, out, err), 0);
  for (const char* text :
       {"usage: megatron tokenize", "--decode", "--tokenizer-model", "--tiktoken-pattern", "echo 72"})
    EXPECT_THAT(out.str(), HasSubstr(text));
}

}  // namespace
}  // namespace megatron
