// Files of tiktoken vocabularies: byte sequences by rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

/// The tokens of a file by rank. Megatron's form is a JSON list of {"rank", "token_bytes", "token_str"}, tiktoken's own
/// a line "base64 rank" for each token. The first 256 tokens of Megatron's form are the bytes in order.
struct TiktokenVocabulary {
  std::vector<std::string> tokens;  ///< bytes, by rank
  bool is_megatrons = false;
};

/// @throw DataError naming the file and the entry if it is missing or damaged: the ranks must be 0 .. n-1, each token
///        different, and each byte a token.
TiktokenVocabulary read_tiktoken_vocabulary(const std::string& path);
/// The same from the content of a file.
TiktokenVocabulary parse_tiktoken_vocabulary(const std::string& content, const std::string& path);

}  // namespace megatron
