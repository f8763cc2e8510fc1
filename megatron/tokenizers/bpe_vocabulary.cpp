#include "megatron/tokenizers/bpe_vocabulary.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>

#include "megatron/base/error.h"
#include "megatron/tokenizers/json_string.h"
#include "megatron/tokenizers/tokenizer_file.h"

namespace megatron {
namespace {
void read_tokens(const std::string& path, BpeVocabulary& vocabulary) {
  const std::string json = read_tokenizer_file("--vocab-file", path);
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  const simdjson::error_code error = parser.parse(json).get(object);
  require<DataError>(!error, "--vocab-file {} is not a JSON object of token ids. {}", path,
                     json.starts_with("#version")
                         ? "It holds merge rules: --vocab-file and --merge-file seem to be swapped."
                         : "Give the vocab.json of GPT-2's tokenizer, and its merges.txt with --merge-file.");
  for (const auto& [token, value] : object) {
    int64_t id = 0;
    require<DataError>(!value.get(id), "the vocabulary {}: the id of '{}' is not an integer", path, token);
    require<DataError>(id >= 0 && id < std::numeric_limits<TokenId>::max(),
                       "the vocabulary {}: the id of '{}' is {}; ids start at 0 and have 31 bits", path, token, id);
    require<DataError>(vocabulary.ids.emplace(token, static_cast<TokenId>(id)).second,
                       "the vocabulary {} has the token '{}' twice", path, token);
  }
}

/// Fills the tokens by id: n ids below n that are all different are 0 .. n-1.
void order_tokens(const std::string& path, BpeVocabulary& vocabulary) {
  const size_t size = vocabulary.ids.size();
  std::vector<const std::string*> by_id(size, nullptr);
  for (const auto& [token, id] : vocabulary.ids) {
    require<DataError>(static_cast<size_t>(id) < size,
                       "the vocabulary {} has {} tokens, but '{}' has the id {}; ids must be 0 .. {}", path, size,
                       token, id, size - 1);
    const std::string*& place = by_id[static_cast<size_t>(id)];
    require<DataError>(place == nullptr, "the vocabulary {}: '{}' and '{}' both have the id {}", path,
                       place ? *place : "", token, id);
    place = &token;
  }
  for (const std::string* token : by_id) vocabulary.tokens.push_back(*token);
}

void add_rule(std::string_view line, const std::string& where, BpeVocabulary& vocabulary) {
  const size_t space = line.find(' ');
  require<DataError>(space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
                         line.find(' ', space + 1) == std::string_view::npos,
                     "{}: '{}' is not a merge rule, which is two tokens with one space between them", where, line);
  const auto id_of = [&](const std::string& token) {
    const auto place = vocabulary.ids.find(token);
    require<DataError>(place != vocabulary.ids.end(),
                       "{}: the rule '{}' needs the token '{}', which the vocabulary has not; do --vocab-file and "
                       "--merge-file belong together?",
                       where, line, token);
    return place->second;
  };
  const std::string left(line.substr(0, space)), right(line.substr(space + 1));
  require<DataError>(vocabulary.merges.add(id_of(left), id_of(right), id_of(left + right)),
                     "{}: the rule '{}' is there twice", where, line);
  vocabulary.merge_lines += fmt::format("{}\n", line);
}

void read_merges(const std::string& path, BpeVocabulary& vocabulary) {
  vocabulary.merge_lines = "#version: 0.2\n";
  const std::string text = read_tokenizer_file("--merge-file", path);
  require<DataError>(!text.starts_with('{'),
                     "--merge-file {} is a JSON object, not merge rules. Give the merges.txt of GPT-2's tokenizer, and "
                     "its vocab.json with --vocab-file.",
                     path);
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = end + 1;
    ++number;
    if (!line.starts_with("#version")) add_rule(line, fmt::format("{} line {}", path, number), vocabulary);
  }
}
}  // namespace

BpeVocabulary read_bpe_vocabulary(const std::string& vocab_file, const std::string& merge_file) {
  BpeVocabulary vocabulary;
  read_tokens(vocab_file, vocabulary);
  order_tokens(vocab_file, vocabulary);
  read_merges(merge_file, vocabulary);
  return vocabulary;
}

std::string vocab_json_of(const BpeVocabulary& vocabulary) {
  std::string json = "{";
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id)
    json += fmt::format("{}{}: {}", id == 0 ? "" : ", ", json_string(vocabulary.tokens[id]), id);
  return json + "}";
}

}  // namespace megatron
