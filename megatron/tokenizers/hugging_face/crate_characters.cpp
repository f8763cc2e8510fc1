#include "megatron/tokenizers/hugging_face/crate_characters.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "megatron/tokenizers/unicode_categories.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {
struct CodePoints {
  char32_t first, last;
};

// The crates of tokenizers 0.23.3 differ from Unicode 14 in these, found by asking them about every code point.
constexpr std::array<CodePoints, 80> kNotNonspacingMarks = {
    {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8E1},     {0x9FE, 0x9FE},     {0xAFA, 0xAFF},
     {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},     {0xD00, 0xD00},     {0xD3B, 0xD3C},
     {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0x180F, 0x180F},   {0x1885, 0x1886},   {0x1ABF, 0x1ACE},
     {0x1DF6, 0x1DFB},   {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},   {0xA9BD, 0xA9BD},
     {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
     {0x11073, 0x11074}, {0x110C2, 0x110C2}, {0x111C9, 0x111C9}, {0x111CF, 0x111CF}, {0x1123E, 0x1123E},
     {0x1133B, 0x1133B}, {0x11438, 0x1143F}, {0x11442, 0x11444}, {0x11446, 0x11446}, {0x1145E, 0x1145E},
     {0x1182F, 0x11837}, {0x11839, 0x1183A}, {0x1193B, 0x1193C}, {0x1193E, 0x1193E}, {0x11943, 0x11943},
     {0x119D4, 0x119D7}, {0x119DA, 0x119DB}, {0x119E0, 0x119E0}, {0x11A01, 0x11A0A}, {0x11A33, 0x11A38},
     {0x11A3B, 0x11A3E}, {0x11A47, 0x11A47}, {0x11A51, 0x11A56}, {0x11A59, 0x11A5B}, {0x11A8A, 0x11A96},
     {0x11A98, 0x11A99}, {0x11C30, 0x11C36}, {0x11C38, 0x11C3D}, {0x11C3F, 0x11C3F}, {0x11C92, 0x11CA7},
     {0x11CAA, 0x11CB0}, {0x11CB2, 0x11CB3}, {0x11CB5, 0x11CB6}, {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A},
     {0x11D3C, 0x11D3D}, {0x11D3F, 0x11D45}, {0x11D47, 0x11D47}, {0x11D90, 0x11D91}, {0x11D95, 0x11D95},
     {0x11D97, 0x11D97}, {0x11EF3, 0x11EF4}, {0x16F4F, 0x16F4F}, {0x16FE4, 0x16FE4}, {0x1CF00, 0x1CF2D},
     {0x1CF30, 0x1CF46}, {0x1E000, 0x1E006}, {0x1E008, 0x1E018}, {0x1E01B, 0x1E021}, {0x1E023, 0x1E024},
     {0x1E026, 0x1E02A}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E944, 0x1E94A}}};
constexpr std::array<CodePoints, 30> kNotPunctuation = {
    {{0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},     {0xC84, 0xC84},
     {0x1B7D, 0x1B7E},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},   {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59},
     {0x10F86, 0x10F89}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C},
     {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
     {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8},
     {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F}}};
constexpr std::array<CodePoints, 4> kNotControls = {
    {{0x890, 0x891}, {0x8E2, 0x8E2}, {0x110CD, 0x110CD}, {0x13430, 0x13438}}};
constexpr std::array<CodePoints, 9> kWithoutCompatibilityMapping = {{{0x32FF, 0x32FF},
                                                                     {0xA7F2, 0xA7F4},
                                                                     {0xAB69, 0xAB69},
                                                                     {0x10781, 0x10785},
                                                                     {0x10787, 0x107B0},
                                                                     {0x107B2, 0x107BA},
                                                                     {0x1E030, 0x1E06D},
                                                                     {0x1F16C, 0x1F16C},
                                                                     {0x1FBF0, 0x1FBF9}}};

// Marks since Unicode 10, which the reference does not reorder.
constexpr std::array<CodePoints, 40> kWithoutCombiningClass = {
    {{0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1AEB},   {0x1DF6, 0x1DFA},
     {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFA, 0x10EFF},
     {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x113CE, 0x113D0},
     {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
     {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
     {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x1612F, 0x1612F}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F},
     {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}}};

// Unicode 17.
constexpr std::array<CodePoints, 2> kNewNumbers = {{{0x11DE0, 0x11DE9}, {0x16FF4, 0x16FF6}}};

/// Upper case from `first` to `last` whose lower case starts at `lower`, of Unicode 16 and 17.
struct NewCase {
  char32_t first, last, lower;
};
constexpr std::array<NewCase, 10> kNewCases = {{{0x1C89, 0x1C89, 0x1C8A},
                                                {0xA7CB, 0xA7CB, 0x264},
                                                {0xA7CC, 0xA7CC, 0xA7CD},
                                                {0xA7CE, 0xA7CE, 0xA7CF},
                                                {0xA7D2, 0xA7D2, 0xA7D3},
                                                {0xA7D4, 0xA7D4, 0xA7D5},
                                                {0xA7DA, 0xA7DA, 0xA7DB},
                                                {0xA7DC, 0xA7DC, 0x19B},
                                                {0x10D50, 0x10D65, 0x10D70},
                                                {0x16EA0, 0x16EB8, 0x16EBB}}};

template <class Ranges>
auto find(const Ranges& ranges, char32_t code_point) {
  const auto range =
      std::ranges::lower_bound(ranges, code_point, {}, [](const auto& candidate) { return candidate.last; });
  return range != ranges.end() && code_point >= range->first ? range : ranges.end();
}

template <class Ranges>
bool contains(const Ranges& ranges, char32_t code_point) {
  return find(ranges, code_point) != ranges.end();
}

bool is_new(char32_t code_point) { return contains(categories_since_unicode_14(), code_point); }
}  // namespace

bool is_punctuation(char32_t code_point) {
  if (code_point < 0x80) return code_point > ' ' && code_point < 0x7F && !std::isalnum(static_cast<int>(code_point));
  if (code_point == 0x166D || code_point == 0x111C9) return true;
  return general_category(code_point)[0] == 'P' && !is_new(code_point) && !contains(kNotPunctuation, code_point);
}

bool is_nonspacing_mark(char32_t code_point) {
  if (code_point < 0x300) return false;
  if (code_point == 0x1734 || code_point == 0x1171E) return true;
  return general_category(code_point) == "Mn" && !is_new(code_point) && !contains(kNotNonspacingMarks, code_point);
}

bool is_control_or_format(char32_t code_point) {
  if (code_point < 0x80) return code_point < ' ' || code_point == 0x7F;
  const std::string_view category = general_category(code_point);
  return (category == "Cc" || category == "Cf" || category == "Co") && !is_new(code_point) &&
         !contains(kNotControls, code_point);
}

bool is_number(char32_t code_point) {
  return general_category(code_point)[0] == 'N' || contains(kNewNumbers, code_point);
}

void append_lower(char32_t code_point, std::string& text) {
  if (code_point < kNewCases[0].first) return append_lower_case(code_point, text);
  const auto range = find(kNewCases, code_point);
  if (range == kNewCases.end()) return append_lower_case(code_point, text);
  append_utf8(range->lower + (code_point - range->first), text);
}

std::string in_form(std::string_view valid, NormalForm form) {
  const bool is_compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool decomposes = form == NormalForm::kNfd || form == NormalForm::kNfkd;
  std::string result;
  size_t begin = 0;  // of what follows the last character that stays as it is
  for (size_t offset = 0, length; offset < valid.size(); offset += length) {
    length = utf8_length(valid[offset]);
    if (length == 1) continue;
    const char32_t code_point = code_point_at(valid, offset);
    if (code_point < kWithoutCombiningClass[0].first) continue;
    const bool stays = contains(kWithoutCombiningClass, code_point) ||
                       (is_compatibility && contains(kWithoutCompatibilityMapping, code_point)) ||
                       (code_point == 0x11938 && decomposes);
    if (!stays) continue;
    result += normalized(valid.substr(begin, offset - begin), form);
    result += valid.substr(offset, length);
    begin = offset + length;
  }
  return result + normalized(valid.substr(begin), form);
}

}  // namespace megatron::hugging_face
