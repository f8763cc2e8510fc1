#include "megatron/tokenizers/regex_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8  // pcre2.h asks for it
#include <pcre2.h>

#include <array>
#include <new>
#include <string>

#include "megatron/base/error.h"
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

std::string with_unicode_white_space(std::string_view pattern) {
  std::string result;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      result += pattern[i];
      continue;
    }
    const std::string_view escape = pattern.substr(i++, 2);
    result += escape == "\\s" ? "\\p{White_Space}" : escape == "\\S" ? "\\P{White_Space}" : escape;
  }
  return result;
}
}  // namespace

RegexPattern::RegexPattern(std::string_view pattern) {
  const std::string unicode = with_unicode_white_space(pattern);
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
