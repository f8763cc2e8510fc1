#include "megatron/tokenizers/regex_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8  // pcre2.h asks for it
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>

#include "megatron/base/error.h"
#include "megatron/tokenizers/unicode_categories.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {
// Steps and KiB of heap for one match; the patterns of tokenizers need a handful of steps per character.
constexpr uint32_t kMatchLimit = 10'000'000, kHeapLimitKib = 256 * 1024;
constexpr size_t kJitStackBytes = 32 * 1024, kMaxJitStackBytes = 1024 * 1024;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// The end of an escape such as \s or \p{Lu} that starts at `begin`.
size_t end_of_escape(std::string_view pattern, size_t begin) {
  const bool has_name = pattern.substr(begin + 1).starts_with("p{") || pattern.substr(begin + 1).starts_with("P{");
  const size_t end = has_name ? pattern.find('}', begin) : begin + 1;
  return end >= pattern.size() ? pattern.size() : end + 1;
}

/// Ranges that the general categories of a name, one letter or two, have since Unicode 14, for inside of brackets.
std::string new_ranges(std::string_view name) {
  std::string ranges;
  for (const CategoryRange& range : categories_since_unicode_14())
    if (!name.empty() && name.size() <= 2 && range.category.starts_with(name))
      ranges += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", uint32_t{range.first}, uint32_t{range.last});
  return ranges;
}

std::string translated_escape(std::string_view escape, bool in_brackets) {
  if (escape == "\\s") return "\\p{White_Space}";
  if (escape == "\\S") return "\\P{White_Space}";
  if (!escape.starts_with("\\p{") && !escape.starts_with("\\P{")) return std::string(escape);
  const std::string_view name = escape.substr(3, escape.size() - 4);
  const std::string ranges = new_ranges(name);
  if (ranges.empty() || (in_brackets && escape[1] == 'P')) return std::string(escape);
  if (in_brackets) return std::string(escape) + ranges;
  return fmt::format("[{}\\p{{{}}}{}]", escape[1] == 'P' ? "^" : "", name, ranges);
}

/// The pattern with the classes of Unicode 16.
std::string with_unicode_16(std::string_view pattern) {
  std::string result;
  bool in_brackets = false;
  for (size_t i = 0, end; i < pattern.size(); i = end) {
    end = i + 1;
    if (pattern[i] == '\\') {
      end = end_of_escape(pattern, i);
      result += translated_escape(pattern.substr(i, end - i), in_brackets);
      continue;
    }
    if (in_brackets && pattern.substr(i).starts_with("[:"))
      end = std::min(pattern.find(":]", i), pattern.size() - 2) + 2;
    if (!in_brackets && pattern[i] == '[') {
      in_brackets = true;
      if (pattern.substr(end).starts_with('^')) ++end;
      if (pattern.substr(end).starts_with(']')) ++end;  // the first of the set does not end it
    } else if (end == i + 1 && pattern[i] == ']') {
      in_brackets = false;
    }
    result += pattern.substr(i, end - i);
  }
  return result;
}
}  // namespace

RegexPattern::RegexPattern(std::string_view pattern) {
  if (const std::optional<WordRules> rules = WordRules::of(pattern)) words_ = std::make_unique<const WordRules>(*rules);
  const std::string unicode = with_unicode_16(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(unicode.data()), unicode.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY, &error, &offset,
                            nullptr));
  require<ConfigError>(code_ != nullptr, "the regular expression {} is wrong at offset {}: {}", unicode, offset,
                       code_ ? "" : message_of(error));
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // where the system forbids it, matching is interpreted
}

bool RegexPattern::matches_empty() const {
  uint32_t result = 1;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &result);
  return result != 0;
}

void RegexPattern::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

RegexSplitter::RegexSplitter(const RegexPattern& pattern)
    : code_(pattern.code_.get()),
      stack_(pcre2_jit_stack_create(kJitStackBytes, kMaxJitStackBytes, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      data_(pcre2_match_data_create(1, nullptr)) {
  if (!context_ || !data_) throw std::bad_alloc();
  if (pattern.words_) scanner_.emplace(*pattern.words_, CharacterSets::unicode_16());
  pcre2_set_match_limit(context_.get(), kMatchLimit);
  pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
  pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
}

RegexSplitter::Range RegexSplitter::find(std::string_view valid, size_t begin, bool empty) {
  const uint32_t options = PCRE2_NO_UTF_CHECK | (empty ? 0 : PCRE2_NOTEMPTY);
  const int count = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(valid.data()), valid.size(), begin, options,
                                data_.get(), context_.get());
  if (count == PCRE2_ERROR_NOMATCH) return empty ? kNoMatch : Range{valid.size(), valid.size()};
  if (count < 0)
    throw DataError(
        fmt::format("the text from offset {} on defeats the pattern of the tokenizer: {}", begin, message_of(count)));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data_.get());
  return {range[0], range[1]};
}

size_t RegexSplitter::next_character(std::string_view valid, size_t offset) {
  return offset < valid.size() ? offset + utf8_length(valid[offset]) : offset + 1;
}

void RegexSplitter::Free::operator()(pcre2_real_match_data_8* data) const { pcre2_match_data_free(data); }
void RegexSplitter::Free::operator()(pcre2_real_match_context_8* context) const { pcre2_match_context_free(context); }
void RegexSplitter::Free::operator()(pcre2_real_jit_stack_8* stack) const { pcre2_jit_stack_free(stack); }

}  // namespace megatron
