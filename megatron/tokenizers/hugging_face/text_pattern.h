// The patterns of a tokenizer.json: {"String": ...} or {"Regex": ...}.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/hugging_face/json_fields.h"
#include "megatron/tokenizers/regex_splitter.h"

namespace megatron::hugging_face {

/// A part of a text, in bytes, and whether the pattern matches it.
struct PatternPart {
  size_t begin, end;
  bool is_match;
};

/// Immutable; threads may share it.
class TextPattern {
 public:
  /// @throw DataError, NotSupported or ConfigError if `json` is no pattern or a regular expression is not supported.
  TextPattern(simdjson::dom::element json, const std::string& where);
  /// A regular expression in Oniguruma's syntax.
  static TextPattern regex(std::string_view pattern);

  /// Matches and what is between them, in order: together the whole text, which may be empty.
  std::vector<PatternPart> parts(std::string_view valid, RegexSplitter& splitter) const;
  /// The text with each match replaced.
  std::string replaced(std::string_view valid, std::string_view content) const;

  const RegexPattern& compiled() const { return *regex_; }

 private:
  TextPattern() = default;
  std::unique_ptr<RegexPattern> regex_;
  std::string literal_;  // what a {"String"} is; empty for a {"Regex"}
};

/// Characters that `matches` accepts, one by one, and what is between them.
std::vector<PatternPart> character_parts(std::string_view valid, const std::function<bool(char32_t)>& matches);

/// The handling of the matches when a text is split by a pattern.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
/// @throw NotSupported for a name that is none of them.
SplitBehavior split_behavior_of(std::string_view name, std::string_view where);
/// The pieces [begin, end) of a text that was cut into `parts`, in order. Pieces may be empty.
std::vector<std::pair<size_t, size_t>> pieces_of(const std::vector<PatternPart>& parts, SplitBehavior behavior);

}  // namespace megatron::hugging_face
