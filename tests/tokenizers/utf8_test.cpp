#include "megatron/tokenizers/utf8.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {
TEST(Utf8, EveryCodePointIsValidButSurrogates) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string text = "a";
    append_utf8(c, text);
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(find_invalid_utf8(text).has_value(), surrogate) << static_cast<uint32_t>(c);
    if (surrogate) continue;
    ASSERT_EQ(code_point_at(text, 1), c);
    ASSERT_EQ(1 + utf8_length(text[1]), text.size());
  }
}

TEST(Utf8, TheFirstBrokenByteIsFound) {
  EXPECT_EQ(find_invalid_utf8("0123456789\xC3\xA9\xFFz"), 12u);
  EXPECT_EQ(find_invalid_utf8("\xC0\x80"), 0u) << "overlong";
  EXPECT_EQ(find_invalid_utf8("ab\xF4\x90\x80\x80"), 2u) << "above U+10FFFF";
  EXPECT_EQ(find_invalid_utf8("ab\xE2\x82"), 2u) << "cut off";
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
}

TEST(Utf8, ErrorNamesByteAndOffset) {
  try {
    require_utf8("caf\xE9 au lait");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("byte 0xe9 at offset 3"), std::string::npos) << error.what();
  }
}

// The examples of the Unicode standard 15, table 3-8 and its neighbours.
TEST(Utf8, EachMaximalInvalidPartBecomesOneReplacementCharacter) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("plain \xC3\xA9"), "plain \xC3\xA9");
}

TEST(Utf8, CountsAndOffsetsAreInCodePoints) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
  EXPECT_EQ(count_code_points(text), 5u);
  EXPECT_EQ(offset_of_code_point(text, 3), 6u);
  EXPECT_EQ(offset_of_code_point(text, 5), text.size());
  EXPECT_EQ(offset_of_code_point(text, 99), text.size());
}
}  // namespace
}  // namespace megatron
