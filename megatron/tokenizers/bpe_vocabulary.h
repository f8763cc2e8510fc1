// vocab.json and merges.txt: the files of a byte-level BPE vocabulary.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatron/tokenizers/bpe_merges.h"

namespace megatron {

/// Tokens as written in the file (bytes in the printable alphabet of byte_alphabet.h) and the rules that form them.
struct BpeVocabulary {
  std::vector<std::string> tokens;  ///< by id
  std::unordered_map<std::string, TokenId> ids;
  BpeMerges merges;
  std::string merge_lines;  ///< the rules as a merges.txt, without comments
};

/// Reads `{"token": id, ...}` and lines "left right" in order of rank; lines that start with "#version" are skipped.
/// @throw IoError if a file cannot be read; DataError naming the file and the place if it is damaged, the ids are not
///        0 .. n-1, or a rule speaks of a token that the vocabulary has not.
BpeVocabulary read_bpe_vocabulary(const std::string& vocab_file, const std::string& merge_file);

/// The tokens as a vocab.json, by id.
std::string vocab_json_of(const BpeVocabulary& vocabulary);

}  // namespace megatron
