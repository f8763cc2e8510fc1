#include "megatron/tokenizers/regex_splitter.h"

#include <gtest/gtest.h>

#include <random>
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

TEST(RegexSplitter, CategoriesAreThoseOfUnicode16) {
  const std::string letter = "\U0001C0A9" /* unassigned */, garay = "\U00010D50", ideograph = "\U00031350";
  for (const char* pattern : {R"(\p{L}+)", R"([\p{L}]+)", R"([^\P{Lu}\p{Lo}]+|\p{Lo}+|\p{Lu}+)"})
    EXPECT_EQ(split(RegexPattern(pattern), "!" + garay + "!" + letter), (Pieces{"!", garay, "!" + letter})) << pattern;
  EXPECT_EQ(split(RegexPattern(R"(\P{L}+)"), "!" + ideograph), (Pieces{"!", ideograph}));
  EXPECT_EQ(split(RegexPattern(R"([]\p{N}]+)"), "a]\U00010D40"), (Pieces{"a", "]\U00010D40"}));
}

/// The patterns that WordRules knows.
const std::vector<std::string> kKnownPatterns = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
    R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

/// The pieces by PCRE2.
Pieces matches_of(const RegexPattern& pattern, std::string_view text) {
  RegexSplitter splitter(pattern);
  Pieces pieces;
  splitter.for_each_match(text, [&](RegexSplitter::Range match) {
    pieces.emplace_back(text.substr(match.begin, match.end - match.begin));
  });
  return pieces;
}

/// Characters of every set, those that the patterns name more often.
std::string random_text(std::mt19937& random, size_t num_characters) {
  static const std::vector<std::string> kCharacters = {
      "'",  "'", "s",      "S",      "t", "re",     "Ve",     "LL",         "l",          "d",      "ſ",      "a",
      "B",  "z", " ",      " ",      " ", "\n",     "\r",     "\t",         "\u00A0",     "\u3000", "\u0085", "1",
      "2",  "3", "٣",      "½",      ".", "/",      "!",      "-",          "é",          "É",      "ǅ",      "ʰ",
      "字", "ا", "\u0301", "\u20E3", "😀", "\u200D", "\u180E", "\U00010D50", "\U0001C0A9", "\x01",   "\x7F"};
  std::string text;
  for (size_t i = 0; i < num_characters; ++i) {
    const std::string& character = kCharacters[random() % kCharacters.size()];
    for (size_t count = random() % 8 == 0 ? 1 + random() % 70 : 1; count > 0; --count) text += character;
  }
  return text;
}

/// Mostly ASCII, so that words are found by blocks, with runs over their bounds and other characters here and there.
std::string random_ascii_text(std::mt19937& random, size_t num_parts) {
  static const std::vector<std::string> kParts = {"'",  "'",  "s",     "S",     "t", "re",   "Ve",   "LL",  "d",
                                                  "a",  "B",  "hello", "World", " ", " ",    " ",    "  ",  "    ",
                                                  "\n", "\n", "\r",    "\t",    "1", "2",    "34",   "567", "89012",
                                                  ".",  "/",  "!",     "-",     "(", "\x01", "\x7F", "\"",  "_"};
  std::string text;
  for (size_t i = 0; i < num_parts; ++i) {
    if (random() % 200 == 0) text += random_text(random, 1);
    const std::string& part = kParts[random() % kParts.size()];
    const size_t longest = random() % 8 == 0 ? 150 : 8;
    for (size_t count = random() % 16 == 0 ? 1 + random() % longest : 1; count > 0; --count) text += part;
  }
  return text;
}

TEST(RegexSplitter, KnownPatternsGiveTheWordsOfTheRegularExpressionInAscii) {
  for (const std::string& known : kKnownPatterns) {
    const RegexPattern pattern(known);
    std::mt19937 random(11);
    for (int i = 0; i < 1000; ++i) {
      const std::string text = random_ascii_text(random, random() % 300);
      ASSERT_EQ(split(pattern, text), matches_of(pattern, text)) << known << ::testing::PrintToString(text);
    }
    const std::string text = random_ascii_text(random, 20'000);
    ASSERT_EQ(split(pattern, text), matches_of(pattern, text)) << known;
  }
}

TEST(RegexSplitter, KnownPatternsGiveTheWordsOfTheRegularExpression) {
  for (const std::string& known : kKnownPatterns) {
    ASSERT_TRUE(WordRules::of(known)) << known;
    const RegexPattern pattern(known);
    std::mt19937 random(7);
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random_text(random, random() % 12);
      ASSERT_EQ(split(pattern, text), matches_of(pattern, text)) << known << ::testing::PrintToString(text);
    }
    for (int i = 0; i < 4; ++i) {  // over the bounds between the parts that are looked at together
      const std::string text = random_text(random, 20'000);
      ASSERT_EQ(split(pattern, text), matches_of(pattern, text)) << known;
    }
  }
}

TEST(RegexSplitter, BadPatternsAreRefused) { EXPECT_THROW(RegexPattern("a(b"), ConfigError); }

TEST(RegexSplitter, PatternsThatDoNotEndAreStopped) {
  const RegexPattern pattern("(?:a+)+(?<=x)b");
  EXPECT_THROW(split(pattern, std::string(200, 'a') + "b"), DataError);
}
}  // namespace
}  // namespace megatron
