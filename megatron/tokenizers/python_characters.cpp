#include "megatron/tokenizers/python_characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr char32_t kSigma = 0x3A3, kFinalSigma = 0x3C2;

using CharacterRange = std::pair<char32_t, char32_t>;  // both ends belong to it

/// PropList.txt of Unicode 14, Other_Uppercase and Other_Lowercase.
constexpr std::array<CharacterRange, 5> kOtherUppercase = {
    {{0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}}};
constexpr std::array<CharacterRange, 26> kOtherLowercase = {
    {{0xAA, 0xAA},     {0xBA, 0xBA},     {0x2B0, 0x2B8},     {0x2C0, 0x2C1},     {0x2E0, 0x2E4},     {0x345, 0x345},
     {0x37A, 0x37A},   {0x1D2C, 0x1D6A}, {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
     {0x2090, 0x209C}, {0x2170, 0x217F}, {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},
     {0xA7F8, 0xA7F9}, {0xAB5C, 0xAB5F}, {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
     {0xA7F2, 0xA7F4}, {0x10FC, 0x10FC}}};

template <size_t n>
bool is_in(const std::array<CharacterRange, n>& ranges, char32_t code_point) {
  return std::ranges::any_of(
      ranges, [&](const CharacterRange& range) { return range.first <= code_point && code_point <= range.second; });
}

utf8proc_category_t python_category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

bool is_cased(char32_t code_point) {
  return is_python_upper(code_point) || is_python_lower(code_point) ||
         python_category(code_point) == UTF8PROC_CATEGORY_LT;
}

/// The property Case_Ignorable.
bool is_case_ignorable(char32_t code_point) {
  constexpr std::u32string_view kMidWord =
      U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
  switch (python_category(code_point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return kMidWord.find(code_point) != kMidWord.npos;
  }
}

/// Says whether a cased letter stands before the sigma at `position`, and none behind it (SpecialCasing.txt,
/// Final_Sigma).
bool ends_a_word(const std::vector<char32_t>& text, size_t position) {
  size_t before = position;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = position + 1;
  while (after < text.size() && is_case_ignorable(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

std::vector<char32_t> code_points_of(std::string_view valid) {
  std::vector<char32_t> code_points;
  for (size_t i = 0; i < valid.size(); i += utf8_length(valid[i])) code_points.push_back(code_point_at(valid, i));
  return code_points;
}

}  // namespace

bool is_python_space(char32_t code_point) {
  return (code_point >= 0x1C && code_point <= 0x1F) || is_white_space(code_point);
}

bool is_python_decimal(char32_t code_point) {
  if (code_point < 0x80) return code_point >= '0' && code_point <= '9';
  return python_category(code_point) == UTF8PROC_CATEGORY_ND;
}

bool is_python_letter(char32_t code_point) {
  if (code_point < 0x80)
    return (code_point >= 'a' && code_point <= 'z') || (code_point >= 'A' && code_point <= 'Z') || code_point == '_';
  switch (python_category(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return false;
  }
}

bool is_python_upper(char32_t code_point) {
  if (code_point < 0x80) return code_point >= 'A' && code_point <= 'Z';
  return python_category(code_point) == UTF8PROC_CATEGORY_LU || is_in(kOtherUppercase, code_point);
}

bool is_python_lower(char32_t code_point) {
  if (code_point < 0x80) return code_point >= 'a' && code_point <= 'z';
  return python_category(code_point) == UTF8PROC_CATEGORY_LL || is_in(kOtherLowercase, code_point);
}

std::string python_lower(std::string_view valid) {
  std::string result;
  result.reserve(valid.size());
  if (std::ranges::all_of(valid, [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
    for (const char c : valid) result += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return result;
  }
  const std::vector<char32_t> code_points = code_points_of(valid);
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (code_points[i] == kSigma && ends_a_word(code_points, i))
      append_utf8(kFinalSigma, result);
    else
      append_lower_case(code_points[i], result);
  }
  return result;
}

}  // namespace megatron
