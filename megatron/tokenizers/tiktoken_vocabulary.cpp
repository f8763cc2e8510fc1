#include "megatron/tokenizers/tiktoken_vocabulary.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "megatron/base/error.h"
#include "megatron/tokenizers/base64.h"
#include "megatron/tokenizers/tokenizer_file.h"

namespace megatron {
namespace {

std::string bytes_of(std::string_view base64, const std::string& where) {
  std::optional<std::string> bytes = base64_decoded(base64);
  require<DataError>(bytes && !bytes->empty(), "{}: '{}' is not the base64 of a token", where, base64);
  return *std::move(bytes);
}

std::vector<std::string> read_list(const std::string& json, const std::string& path) {
  simdjson::dom::parser parser;
  simdjson::dom::array list;
  require<DataError>(!parser.parse(json).get(list),
                     "--tokenizer-model {} is neither Megatron's JSON list of tokens nor a .tiktoken file", path);
  std::vector<std::string> tokens;
  for (const auto& entry : list) {
    const std::string where = fmt::format("{} entry {}", path, tokens.size());
    int64_t rank = -1;
    std::string_view base64, text;
    simdjson::dom::object object;
    const bool is_entry = !entry.get(object) && object.size() == 3 && !object["rank"].get(rank) &&
                          !object["token_bytes"].get(base64) && !object["token_str"].get(text);
    require<DataError>(is_entry, "{} does not have exactly the fields rank, token_bytes and token_str", where);
    require<DataError>(rank == static_cast<int64_t>(tokens.size()), "{} has the rank {}, not its place", where, rank);
    tokens.push_back(bytes_of(base64, where));
    require<DataError>(tokens.size() > 256 || tokens.back() == std::string(1, static_cast<char>(rank)),
                       "{} is not the byte {}: the first 256 tokens must be the bytes in order", where, rank);
  }
  return tokens;
}

std::vector<std::string> read_lines(const std::string& text, const std::string& path) {
  std::vector<std::string> tokens;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = end + 1;
    ++number;
    if (line.empty()) continue;
    const std::string where = fmt::format("{} line {}", path, number);
    const size_t space = line.find(' ');
    size_t rank = 0;
    const bool has_rank =
        space != std::string_view::npos &&
        std::from_chars(line.data() + space + 1, line.data() + line.size(), rank).ptr == line.data() + line.size();
    require<DataError>(has_rank, "{}: '{}' is not a token in base64, a space and its rank", where, line);
    require<DataError>(rank == tokens.size(), "{} has the rank {}; {} is next", where, rank, tokens.size());
    tokens.push_back(bytes_of(line.substr(0, space), where));
  }
  return tokens;
}

void require_distinct_bytes(const std::vector<std::string>& tokens, const std::string& path) {
  std::unordered_set<std::string_view> known;
  for (size_t rank = 0; rank < tokens.size(); ++rank)
    require<DataError>(known.insert(tokens[rank]).second, "{}: the token of rank {} is there twice", path, rank);
  for (int byte = 0; byte < 256; ++byte)
    require<DataError>(known.contains(std::string(1, static_cast<char>(byte))), "{} has no token for the byte {:#04x}",
                       path, byte);
}
}  // namespace

TiktokenVocabulary parse_tiktoken_vocabulary(const std::string& content, const std::string& path) {
  const size_t first = content.find_first_not_of(" \t\r\n");
  const bool is_megatrons = first != std::string::npos && (content[first] == '[' || content[first] == '{');
  TiktokenVocabulary vocabulary{.tokens = is_megatrons ? read_list(content, path) : read_lines(content, path),
                                .is_megatrons = is_megatrons};
  require_distinct_bytes(vocabulary.tokens, path);
  return vocabulary;
}

TiktokenVocabulary read_tiktoken_vocabulary(const std::string& path) {
  return parse_tiktoken_vocabulary(read_tokenizer_file("--tokenizer-model", path), path);
}

}  // namespace megatron
