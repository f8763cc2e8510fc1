// Regular expressions that cut text into the pieces within which BPE merges.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;
struct pcre2_real_jit_stack_8;

namespace megatron {

/// Perl syntax, compiled for UTF-8 with Unicode character classes. Immutable; threads may share it.
/// `\s` and `\S` mean Unicode's White_Space, as in the engines that tokenizers are defined by; PCRE2's own `\s` has
/// U+180E besides.
class RegexPattern {
 public:
  /// @throw ConfigError with the place of the mistake.
  explicit RegexPattern(std::string_view pattern);

 private:
  friend class RegexSplitter;
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

/// Cuts texts by a pattern, which must outlive it. One thread uses it at a time.
class RegexSplitter {
 public:
  explicit RegexSplitter(const RegexPattern& pattern);

  /// Calls `f(piece)` for each match and for each stretch between matches, in order; the pieces put together are the
  /// text. @param valid  valid UTF-8. @throw DataError if the pattern needs more memory or steps than the limits allow.
  template <class F>
  void for_each_piece(std::string_view valid, F&& f) {
    for (size_t begin = 0; begin < valid.size();) {
      const Range match = find(valid, begin);
      if (match.begin > begin) f(valid.substr(begin, match.begin - begin));
      if (match.end > match.begin) f(valid.substr(match.begin, match.end - match.begin));
      begin = match.end;
    }
  }

 private:
  struct Range {
    size_t begin, end;
  };
  /// First match that is not empty at or after `begin`; [size, size) if there is none.
  Range find(std::string_view valid, size_t begin);

  struct Free {
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
    void operator()(pcre2_real_jit_stack_8* stack) const;
  };
  const pcre2_real_code_8* code_;
  std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;
  std::unique_ptr<pcre2_real_match_context_8, Free> context_;
  std::unique_ptr<pcre2_real_match_data_8, Free> data_;
};

}  // namespace megatron
