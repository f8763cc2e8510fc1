#include "megatron/tokenizers/hugging_face/text_pattern.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/tokenizers/oniguruma_syntax.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {
using Pieces = std::vector<std::pair<size_t, size_t>>;

void append_replaced(std::string_view text, std::string_view literal, std::string_view content, std::string& result) {
  size_t begin = 0;
  for (size_t found; (found = text.find(literal, begin)) != std::string_view::npos; begin = found + literal.size()) {
    result += text.substr(begin, found - begin);
    result += content;
  }
  result += text.substr(begin);
}

/// Joins each match that follows a part that is none to the piece made last; `join` says how.
template <class Parts, class Join>
Pieces merged(const Parts& parts, Join&& join) {
  Pieces pieces;
  bool previous_match = false;
  for (const PatternPart& part : parts) {
    if (part.is_match && !previous_match && !pieces.empty())
      join(pieces.back(), part);
    else
      pieces.emplace_back(part.begin, part.end);
    previous_match = part.is_match;
  }
  return pieces;
}

Pieces contiguous(const std::vector<PatternPart>& parts) {
  Pieces pieces;
  bool previous_match = false;
  for (const PatternPart& part : parts) {
    if (part.is_match == previous_match && !pieces.empty())
      pieces.back().second = part.end;
    else
      pieces.emplace_back(part.begin, part.end);
    previous_match = part.is_match;
  }
  return pieces;
}
}  // namespace

TextPattern::TextPattern(simdjson::dom::element json, const std::string& where) {
  JsonFields fields(json, where);
  const auto literal = fields.find_string("String"), regex = fields.find_string("Regex");
  fields.require_all_read();
  require<DataError>(literal.has_value() != regex.has_value(), "{} needs either 'String' or 'Regex'", where);
  literal_ = literal.value_or("");
  regex_ = std::make_unique<RegexPattern>(literal ? quoted_pattern(*literal) : perl_from_oniguruma(*regex));
}

TextPattern TextPattern::regex(std::string_view pattern) {
  TextPattern result;
  result.regex_ = std::make_unique<RegexPattern>(perl_from_oniguruma(pattern));
  return result;
}

std::vector<PatternPart> TextPattern::parts(std::string_view valid, RegexSplitter& splitter) const {
  if (valid.empty()) return {{0, 0, false}};
  std::vector<PatternPart> result;
  size_t previous = 0;
  splitter.for_each_match(valid, [&](RegexSplitter::Range match) {
    if (match.begin != previous) result.push_back({previous, match.begin, false});
    result.push_back({match.begin, match.end, true});
    previous = match.end;
  });
  if (previous != valid.size()) result.push_back({previous, valid.size(), false});
  return result;
}

std::string TextPattern::replaced(std::string_view valid, std::string_view content) const {
  std::string result;
  result.reserve(valid.size());
  if (!literal_.empty()) {
    append_replaced(valid, literal_, content, result);
    return result;
  }
  RegexSplitter splitter(*regex_);
  for (const PatternPart& part : parts(valid, splitter))
    result += part.is_match ? content : valid.substr(part.begin, part.end - part.begin);
  return result;
}

std::vector<PatternPart> character_parts(std::string_view valid, const std::function<bool(char32_t)>& matches) {
  std::vector<PatternPart> result;
  size_t begin = 0;
  for (size_t offset = 0, end; offset < valid.size(); offset = end) {
    end = offset + utf8_length(valid[offset]);
    if (!matches(code_point_at(valid, offset))) continue;
    if (begin < offset) result.push_back({begin, offset, false});
    result.push_back({offset, end, true});
    begin = end;
  }
  if (begin < valid.size()) result.push_back({begin, valid.size(), false});
  return result;
}

SplitBehavior split_behavior_of(std::string_view name, std::string_view where) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw NotSupported(fmt::format("{}: the behavior '{}' is unknown", where, name));
}

std::vector<std::pair<size_t, size_t>> pieces_of(const std::vector<PatternPart>& parts, SplitBehavior behavior) {
  Pieces pieces;
  switch (behavior) {
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      for (const PatternPart& part : parts)
        if (!part.is_match || behavior == SplitBehavior::kIsolated) pieces.emplace_back(part.begin, part.end);
      return pieces;
    case SplitBehavior::kMergedWithPrevious:
      return merged(parts, [](auto& piece, const PatternPart& part) { piece.second = part.end; });
    case SplitBehavior::kMergedWithNext:
      pieces = merged(std::vector(parts.rbegin(), parts.rend()),
                      [](auto& piece, const PatternPart& part) { piece.first = part.begin; });
      std::ranges::reverse(pieces);
      return pieces;
    case SplitBehavior::kContiguous:
      break;
  }
  return contiguous(parts);
}

}  // namespace megatron::hugging_face
