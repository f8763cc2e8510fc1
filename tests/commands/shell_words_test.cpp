#include "commands/shell_words.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace megatron {
namespace {

/// The words that a shell reads from the line, one a line.
std::string words_that_a_shell_reads(const std::string& line) {
  FILE* pipe = ::popen(("printf '%s\\n--\\n' " + line).c_str(), "r");
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  ::pclose(pipe);
  return text;
}

TEST(ShellWords, AShellReadsThemUnchanged) {
  const std::vector<std::string> words = {
      "--data-path",   "a b", "",  "it's", "'",       "$HOME",      "`id`",          "a;b|c&d",
      "Et*3|(tt|)*2L", "#x",  "~", "!",    "a\\b\"c", "two\nlines", "--split=8,1,1", "*"};
  std::string expected;
  for (const std::string& word : words) expected += word + "\n--\n";
  EXPECT_EQ(words_that_a_shell_reads(shell_line(words)), expected);
}

TEST(ShellWords, AreUnquotedWherePossible) {
  EXPECT_EQ(shell_line({"megatron", "pretrain_gpt", "--lr=1e-3", "--split", "8,1,1", "/a/b_c.d"}),
            "megatron pretrain_gpt --lr=1e-3 --split 8,1,1 /a/b_c.d");
}

}  // namespace
}  // namespace megatron
