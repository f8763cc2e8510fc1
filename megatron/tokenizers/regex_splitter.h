// Regular expressions that cut text into the pieces within which BPE merges.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "megatron/tokenizers/word_scanner.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;
struct pcre2_real_jit_stack_8;

namespace megatron {

/// Perl syntax, compiled for UTF-8 with Unicode character classes. Immutable; threads may share it.
/// `\s` and `\S` mean Unicode's White_Space, as in the engines that tokenizers are defined by; PCRE2's own `\s` has
/// U+180E besides. General categories, such as `\p{L}`, are those of Unicode 16; `\P{L}` inside of brackets may be
/// older.
class RegexPattern {
 public:
  /// @throw ConfigError with the place of the mistake.
  explicit RegexPattern(std::string_view pattern);
  /// Says whether it may match the empty text.
  bool matches_empty() const;

 private:
  friend class RegexSplitter;
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<const WordRules> words_;  // of a pattern that is cut by rules of its own; else null
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
    if (scanner_) return scanner_->for_each_word(valid, f);
    for (size_t begin = 0; begin < valid.size();) {
      const Range match = find(valid, begin, false);
      if (match.begin > begin) f(valid.substr(begin, match.begin - begin));
      if (match.end > match.begin) f(valid.substr(match.begin, match.end - match.begin));
      begin = match.end;
    }
  }

  /// `for_each_piece` with the pieces of a part of the text at once: calls `f(part, bounds)` for parts in order;
  /// each piece of a part is between two neighbouring bounds, of which there are two or more.
  template <class F>
  void for_each_batch(std::string_view valid, F&& f) {
    if (scanner_) return scanner_->for_each_batch(valid, f);
    for_each_piece(valid, [&f](std::string_view piece) { f(piece, std::array<size_t, 2>{0, piece.size()}); });
  }

  /// Part of a text, in bytes.
  struct Range {
    size_t begin, end;
    bool operator==(const Range&) const = default;
  };
  /// Calls `f(range)` for each match, in order. An empty match counts unless it touches the match before it.
  template <class F>
  void for_each_match(std::string_view valid, F&& f) {
    std::optional<size_t> last_end;
    for (size_t begin = 0; begin <= valid.size();) {
      const Range match = find(valid, begin, true);
      if (match == kNoMatch) return;
      if (match.begin == match.end && last_end == match.end) {
        begin = next_character(valid, match.end);
        continue;
      }
      f(match);
      last_end = begin = match.end;
    }
  }

 private:
  static constexpr Range kNoMatch = {SIZE_MAX, SIZE_MAX};
  /// First match at or after `begin`. Without `empty` one that is not empty, or [size, size) if there is none; with it
  /// any, or kNoMatch.
  Range find(std::string_view valid, size_t begin, bool empty);
  static size_t next_character(std::string_view valid, size_t offset);

  struct Free {
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
    void operator()(pcre2_real_jit_stack_8* stack) const;
  };
  std::optional<WordScanner> scanner_;
  const pcre2_real_code_8* code_;
  std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;
  std::unique_ptr<pcre2_real_match_context_8, Free> context_;
  std::unique_ptr<pcre2_real_match_data_8, Free> data_;
};

}  // namespace megatron
