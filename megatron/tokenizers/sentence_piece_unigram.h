// SentencePiece's unigram language model.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/byte_trie.h"
#include "megatron/tokenizers/hugging_face/precompiled_charsmap.h"
#include "megatron/tokenizers/sentence_piece_spec.h"

namespace megatron {

/// Normalises texts and cuts them into the pieces of the highest probability, with the additions and roundings of
/// sentencepiece 0.2, so that it decides between nearly equal cuts in the same way. Immutable.
/// Source: Kudo 2018 (arXiv:1804.10959), section 3.2.
class SentencePieceUnigram {
 public:
  /// Says whether a model is one that this class encodes: unigram, without user-defined symbols, with U+2581
  /// for spaces.
  static bool supports(const SentencePieceSpec& spec);
  /// @param spec  of a model that `supports` and that the library has read.
  explicit SentencePieceUnigram(const SentencePieceSpec& spec);

  /// Memory for one text after the other. One thread uses it at a time.
  struct Scratch {
    struct Cut {  ///< the best one that ends at a byte
      float score;
      int32_t begin;  ///< of its last piece; kNone: there is no cut
      TokenId id;
    };
    std::string normalized;
    std::vector<Cut> cuts;
  };
  /// Appends the ids of a text in UTF-8.
  void append(std::string_view text, Scratch& scratch, std::vector<TokenId>& ids) const;

 private:
  static constexpr int32_t kNone = -1;
  struct Prefix {
    std::string_view replacement;
    size_t length;
  };
  Prefix normalized_prefix(std::string_view text) const;
  void normalize(std::string_view text, std::string& normalized) const;
  void find_cuts(std::string_view normalized, std::vector<Scratch::Cut>& cuts) const;

  hugging_face::PrecompiledCharsmap charsmap_;
  std::array<bool, 128> is_plain_{};  // of ASCII characters that stay as they are in front of another one
  bool adds_prefix_, adds_suffix_, removes_spaces_, byte_fallback_;
  ByteTrie trie_;
  std::vector<float> scores_;
  float unknown_score_;
  TokenId unknown_ = 0;
  std::array<TokenId, 256> byte_ids_{};
};

}  // namespace megatron
