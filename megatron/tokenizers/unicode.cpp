#include "megatron/tokenizers/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "megatron/base/error.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {
utf8proc_category_t category_of(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

utf8proc_option_t options_of(NormalForm form) {
  const int nfd = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, nfc = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
  switch (form) {
    case NormalForm::kNfd:
      return static_cast<utf8proc_option_t>(nfd);
    case NormalForm::kNfkc:
      return static_cast<utf8proc_option_t>(nfc | UTF8PROC_COMPAT);
    case NormalForm::kNfkd:
      return static_cast<utf8proc_option_t>(nfd | UTF8PROC_COMPAT);
    case NormalForm::kNfc:
      break;
  }
  return static_cast<utf8proc_option_t>(nfc);
}
}  // namespace

std::string normalized(std::string_view valid, NormalForm form) {
  if (std::ranges::all_of(valid, [](char c) { return static_cast<unsigned char>(c) < 0x80; }))
    return std::string(valid);  // ASCII is in every normal form
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                                             static_cast<utf8proc_ssize_t>(valid.size()), &result, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> guard(result, std::free);
  require(size >= 0, "normalizing {} bytes of text failed: {}", valid.size(), size < 0 ? utf8proc_errmsg(size) : "");
  return {reinterpret_cast<const char*>(result), static_cast<size_t>(size)};
}

void append_lower_case(char32_t code_point, std::string& text) {
  if (code_point == 0x130) {  // the one character whose lower case is two (SpecialCasing.txt)
    text += "i\u0307";
    return;
  }
  append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))), text);
}

bool is_white_space(char32_t code_point) {
  if (code_point < 0x80) return code_point == ' ' || (code_point >= 9 && code_point <= 13);
  if (code_point == 0x85) return true;  // NEL: a control character
  const utf8proc_category_t category = category_of(code_point);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_mark(char32_t code_point) {
  const utf8proc_category_t category = category_of(code_point);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

size_t grapheme_length(std::string_view valid, size_t offset) {
  utf8proc_int32_t state = 0;
  size_t end = offset + utf8_length(valid[offset]);
  auto last = static_cast<utf8proc_int32_t>(code_point_at(valid, offset));
  while (end < valid.size()) {
    const auto next = static_cast<utf8proc_int32_t>(code_point_at(valid, end));
    if (utf8proc_grapheme_break_stateful(last, next, &state)) break;
    last = next;
    end += utf8_length(valid[end]);
  }
  return end - offset;
}

}  // namespace megatron
