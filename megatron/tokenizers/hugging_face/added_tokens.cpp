#include "megatron/tokenizers/hugging_face/added_tokens.h"

#include <fmt/core.h>

#include <algorithm>

#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {
size_t white_space_at_start(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && is_white_space(code_point_at(text, end))) end += utf8_length(text[end]);
  return end;
}

/// Returns the begin of the white space at the end of a text.
size_t white_space_at_end(std::string_view text) {
  while (!text.empty()) {
    const size_t last = start_of_last_character(text);
    if (!is_white_space(code_point_at(text, last))) break;
    text = text.substr(0, last);
  }
  return text.size();
}
}  // namespace

std::vector<AddedToken> read_added_tokens(const std::vector<simdjson::dom::element>& list, const std::string& where) {
  std::vector<AddedToken> tokens;
  for (const auto& json : list) {
    JsonFields fields(json, fmt::format("{}[{}]", where, tokens.size()));
    tokens.push_back({.id = token_id_of(fields.get("id"), fields.where()),
                      .content = fields.get_string("content"),
                      .single_word = fields.get_bool("single_word"),
                      .lstrip = fields.get_bool("lstrip"),
                      .rstrip = fields.get_bool("rstrip"),
                      .normalized = fields.get_bool("normalized"),
                      .special = fields.get_bool("special")});
    fields.require_all_read();
  }
  return tokens;
}

// The \w of Rust's regex crate: Unicode Technical Standard 18, annex C.
AddedTokenMatcher::AddedTokenMatcher() : word_character_(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])") {}

void AddedTokenMatcher::add(std::string_view pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  const auto first = static_cast<unsigned char>(pattern[0]);
  first_bytes_.add(pattern[0]);
  std::vector<Entry>& entries = entries_[first];
  const auto place = std::ranges::find_if(entries, [&](const Entry& e) { return e.pattern.size() < pattern.size(); });
  entries.insert(place, {std::string(pattern), token.id, token.single_word, token.lstrip, token.rstrip});
}

const AddedTokenMatcher::Entry* AddedTokenMatcher::match(std::string_view valid, size_t offset) const {
  const std::string_view rest = valid.substr(offset);
  for (const Entry& entry : entries_[static_cast<unsigned char>(rest[0])])
    if (rest.starts_with(entry.pattern)) return &entry;
  return nullptr;
}

bool AddedTokenMatcher::accept(std::string_view valid, size_t free, const Entry& entry, Range& range) const {
  const std::string_view before = valid.substr(0, range.begin), behind = valid.substr(range.end);
  if (entry.single_word) {
    if (!before.empty() && is_word_character(before.substr(start_of_last_character(before)))) return false;
    if (!behind.empty() && is_word_character(behind.substr(0, utf8_length(behind[0])))) return false;
  }
  if (entry.lstrip) range.begin = std::max(white_space_at_end(before), free);
  if (entry.rstrip) range.end += white_space_at_start(behind);
  return true;
}

bool AddedTokenMatcher::is_word_character(std::string_view character) const {
  bool matches = false;
  RegexSplitter(word_character_).for_each_match(character, [&](RegexSplitter::Range) { matches = true; });
  return matches;
}

}  // namespace megatron::hugging_face
