// Numbers and sums of code points that tokenizers 0.23.3 gives when it is asked about every code point.
#include "megatron/tokenizers/hugging_face/crate_characters.h"

#include <gtest/gtest.h>

#include <functional>

#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {
void for_each_code_point(const std::function<void(char32_t)>& f) {
  for (char32_t c = 0; c < 0x110000; ++c)
    if (c < 0xD800 || c >= 0xE000) f(c);
}

struct Total {
  int64_t count = 0, sum = 0;
  bool operator==(const Total&) const = default;
};

Total total_of(const std::function<bool(char32_t)>& is_member) {
  Total total;
  for_each_code_point([&](char32_t c) {
    if (is_member(c)) total = {total.count + 1, total.sum + c};
  });
  return total;
}

Total total_of_texts(const std::function<std::string(char32_t)>& text_of) {
  Total total;
  for_each_code_point([&](char32_t c) {
    const std::string text = text_of(c);
    for (size_t i = 0; i < text.size(); i += utf8_length(text[i]))
      total = {total.count + 1, total.sum + code_point_at(text, i)};
  });
  return total;
}

Total total_of_form(NormalForm form) {
  return total_of_texts([form](char32_t c) {
    std::string text;
    append_utf8(c, text);
    return in_form(text, form);
  });
}

TEST(CrateCharacters, ClassesHoldTheCodePointsOfTheLibrary) {
  EXPECT_EQ(total_of(is_punctuation), (Total{726, 20675981}));
  EXPECT_EQ(total_of(is_number), (Total{1924, 111666371}));
  EXPECT_EQ(total_of(is_nonspacing_mark), (Total{1567, 262554314}));
  const auto is_removed = [](char32_t c) {  // by BertNormalizer's clean_text
    return c == 0 || c == 0xFFFD || (is_control_or_format(c) && c != '\t' && c != '\n' && c != '\r');
  };
  EXPECT_EQ(total_of(is_removed), (Total{137681, 137913084793}));
}

TEST(CrateCharacters, LowerCaseIsThatOfTheLibrary) {
  EXPECT_EQ(total_of_texts([](char32_t c) {
              std::string text;
              append_lower(c, text);
              return text;
            }),
            (Total{1112065, 620509483996}));
}

TEST(CrateCharacters, NormalFormsAreThoseOfTheLibrary) {
  EXPECT_EQ(total_of_form(NormalForm::kNfc), (Total{1112160, 620414313546}));
  EXPECT_EQ(total_of_form(NormalForm::kNfkc), (Total{1113930, 620202015922}));
  EXPECT_EQ(total_of_form(NormalForm::kNfd), (Total{1135353, 620006556622}));
  EXPECT_EQ(total_of_form(NormalForm::kNfkd), (Total{1137261, 619793393425}));
}

TEST(CrateCharacters, MarksChangeTheirOrderAsInTheLibrary) {
  const auto moves = [](std::u32string_view before, char32_t c, std::u32string_view after, NormalForm form) {
    const std::string_view first = before.empty() ? "\u0334" : "\u0301";  // begins the result of these marks in order
    std::string text;
    for (const char32_t mark : before) append_utf8(mark, text);
    append_utf8(c, text);
    for (const char32_t mark : after) append_utf8(mark, text);
    return in_form(text, form).starts_with(first) == before.empty();
  };
  for (const NormalForm form : {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
    const bool is_compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
    EXPECT_EQ(total_of([&](char32_t c) { return moves(U"\u0301", c, U"", form); }),
              is_compatible ? (Total{344, 8458296}) : (Total{342, 8327419}));
    EXPECT_EQ(total_of([&](char32_t c) { return moves(U"", c, U"\u0334", form); }),
              is_compatible ? (Total{788, 20266829}) : (Total{786, 20135952}));
  }
}

}  // namespace
}  // namespace megatron::hugging_face
