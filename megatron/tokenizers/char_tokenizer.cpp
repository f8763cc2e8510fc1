#include "megatron/tokenizers/char_tokenizer.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <set>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/tokenizers/tokenizer_file.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {
class CharEncoder final : public TextEncoder {
 public:
  explicit CharEncoder(const CharTokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void append(std::string_view text, std::vector<TokenId>& ids) override {
    require_utf8(text);
    ids.reserve(ids.size() + text.size());
    for (size_t offset = 0; offset < text.size(); offset += utf8_length(text[offset]))
      ids.push_back(tokenizer_.id_of(code_point_at(text, offset)));
  }

 private:
  const CharTokenizer& tokenizer_;
};

std::vector<std::string> parse_json_list(const std::string& json, const std::string& path) {
  simdjson::dom::parser parser;
  simdjson::dom::array list;
  const simdjson::error_code error = parser.parse(json).get(list);
  require<DataError>(
      !error,
      "the vocabulary {} is not a JSON array of characters such as [\"a\", \"b\"]. Correct it, or give a "
      "file of plain characters that is not named *.json.",
      path);
  std::vector<std::string> characters;
  for (const simdjson::dom::element element : list) {
    std::string_view character;
    require<DataError>(!element.get(character), "the vocabulary {}: entry {} is not a string", path, characters.size());
    characters.emplace_back(character);
  }
  return characters;
}

std::vector<std::string> split_characters(std::string_view valid) {
  std::vector<std::string> characters;
  for (size_t offset = 0; offset < valid.size(); offset += utf8_length(valid[offset]))
    characters.emplace_back(valid.substr(offset, utf8_length(valid[offset])));
  return characters;
}
}  // namespace

CharTokenizer::CharTokenizer(std::vector<std::string> characters) : characters_(std::move(characters)) {
  require<DataError>(!characters_.empty(), "CharTokenizer: the vocabulary is empty. {}", kHowToMakeACharVocabulary);
  ascii_ids_.fill(kAbsent);
  for (size_t id = 0; id < characters_.size(); ++id) {
    const std::string& character = characters_[id];
    require<DataError>(!find_invalid_utf8(character) && count_code_points(character) == 1,
                       "CharTokenizer: entry {} of the vocabulary, '{}', is not one UTF-8 character", id, character);
    const char32_t code_point = code_point_at(character, 0);
    const auto [place, added] = ids_.emplace(code_point, static_cast<TokenId>(id));
    require<DataError>(added, "CharTokenizer: entries {} and {} of the vocabulary are the same, U+{:04X}",
                       place->second, id, static_cast<uint32_t>(code_point));
    if (code_point < ascii_ids_.size()) ascii_ids_[code_point] = static_cast<TokenId>(id);
  }
}

CharTokenizer CharTokenizer::from_file(const std::string& path) {
  const std::string content = read_tokenizer_file("--vocab-file", path, kHowToMakeACharVocabulary);
  if (path.ends_with(".json")) return CharTokenizer(parse_json_list(content, path));
  require<DataError>(!find_invalid_utf8(content), "the vocabulary {} is not UTF-8", path);
  return CharTokenizer(split_characters(content));
}

std::unique_ptr<TextEncoder> CharTokenizer::make_encoder() const { return std::make_unique<CharEncoder>(*this); }

TokenId CharTokenizer::id_of(char32_t code_point) const {
  if (code_point < ascii_ids_.size() && ascii_ids_[code_point] != kAbsent) return ascii_ids_[code_point];
  const auto place = ids_.find(code_point);
  if (place == ids_.end())
    throw DataError(fmt::format("CharTokenizer: U+{:04X} is not among the {} characters of the vocabulary. {}",
                                static_cast<uint32_t>(code_point), characters_.size(), kHowToMakeACharVocabulary));
  return place->second;
}

std::string CharTokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) {
    require_known(id);
    text += characters_[static_cast<size_t>(id)];
  }
  return text;
}

TokenizerIdentity CharTokenizer::identity() const {
  return {{"class", "CharTokenizer"}, {"tokenizer_path", std::nullopt}, {"characters", joined(characters_, "")}};
}

std::vector<TokenizerFile> CharTokenizer::files() const { return {{"characters.txt", joined(characters_, "")}}; }

std::vector<std::string> distinct_characters(std::string_view valid) {
  std::set<std::string_view> characters;  // UTF-8 sorts as its code points do
  for (size_t offset = 0; offset < valid.size(); offset += utf8_length(valid[offset]))
    characters.insert(valid.substr(offset, utf8_length(valid[offset])));
  return {characters.begin(), characters.end()};
}

}  // namespace megatron
