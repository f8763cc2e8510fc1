#include "megatron/tokenizers/regex_splitter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {
using Pieces = std::vector<std::string>;

Pieces split(const RegexPattern& pattern, std::string_view text) {
  RegexSplitter splitter(pattern);
  Pieces pieces;
  splitter.for_each_piece(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TEST(RegexSplitter, MatchesAndWhatLiesBetweenAreThePieces) {
  EXPECT_EQ(split(RegexPattern("[0-9]{1,3}"), "ab1234c"), (Pieces{"ab", "123", "4", "c"}));
  EXPECT_EQ(split(RegexPattern("x"), "ab"), Pieces{"ab"});
  EXPECT_EQ(split(RegexPattern("x"), ""), Pieces{});
}

TEST(RegexSplitter, EmptyMatchesAreNoPieces) { EXPECT_EQ(split(RegexPattern("x*"), "axxb"), (Pieces{"a", "xx", "b"})); }

TEST(RegexSplitter, WhiteSpaceIsUnicodesWhiteSpace) {
  const RegexPattern blanks(R"(\s+)"), classes(R"([^\s]+)"), negated(R"(\S+)");
  for (const std::string space : {" ", "\t", "\r", "\v", "\xC2\x85", "\xC2\xA0", "\xE3\x80\x80", "\xE2\x80\xA8"}) {
    EXPECT_EQ(split(blanks, "a" + space + "b"), (Pieces{"a", space, "b"}));
    EXPECT_EQ(split(classes, "a" + space + "b"), (Pieces{"a", space, "b"}));
    EXPECT_EQ(split(negated, "a" + space + "b"), (Pieces{"a", space, "b"}));
  }
  const std::string vowel_separator =
      "a\xE1\xA0\x8E"
      "b";  // U+180E, white space until Unicode 6.3
  EXPECT_EQ(split(blanks, vowel_separator), Pieces{vowel_separator});
  EXPECT_EQ(split(RegexPattern(R"(\\s)"), R"(a\sb)"), (Pieces{"a", R"(\s)", "b"})) << "an escaped backslash";
}

TEST(RegexSplitter, LongRunsOfWhiteSpaceStayWithinTheLimits) {
  const RegexPattern pattern(R"(\p{L}+|\s+(?!\S)|\s+)");
  const std::string run(5'000'000, ' ');
  EXPECT_EQ(split(pattern, run + "a").size(), 3u);  // all blanks but one, one, a
  EXPECT_EQ(split(pattern, run).size(), 1u);
}

TEST(RegexSplitter, BadPatternsAreRefused) { EXPECT_THROW(RegexPattern("a(b"), ConfigError); }

TEST(RegexSplitter, PatternsThatDoNotEndAreStopped) {
  const RegexPattern pattern("(?:a+)+(?<=x)b");
  EXPECT_THROW(split(pattern, std::string(200, 'a') + "b"), DataError);
}
}  // namespace
}  // namespace megatron
