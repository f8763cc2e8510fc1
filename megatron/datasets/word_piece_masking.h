// Which tokens of a sample a masked language model has to guess (BERT, T5).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "megatron/datasets/numpy_random.h"

namespace megatron {

/// Names are Megatron Core's (MaskedWordPieceDatasetConfig).
struct WordPieceMaskingConfig {
  double masking_probability = 0.15;
  int64_t masking_max_ngram = 3;
  /// Pieces of a word are masked together.
  bool masking_do_full_word = true;
  bool masking_use_longer_ngrams = false;
  /// Lengths of n-grams follow a geometric distribution instead of 1/n.
  bool masking_use_geometric_distribution = false;
};

/// The facts of a vocabulary that masked data sets need.
struct WordPieceVocabulary {
  int64_t cls = 0, sep = 0, mask = 0, pad = 0, bos = 0, eos = 0;
  std::vector<bool> continues_word;  ///< by token: its text begins with ##
  std::vector<int64_t> sentinels;    ///< T5: stand for masked spans, in this order

  int64_t size() const { return std::ssize(continues_word); }
};

/// Positions that are masked together, ascending, and the tokens that stood there.
struct MaskedSpan {
  std::vector<size_t> positions;
  std::vector<int64_t> tokens;
};

struct MaskedTokens {
  std::vector<int64_t> tokens;    ///< with replacements
  std::vector<MaskedSpan> spans;  ///< by their first position
};

/// The token that takes the place of another one.
using Replacement = std::function<int64_t(int64_t token, NumpyRandomState& random)>;

/// Masks n-grams of words until their share of `target_length` is reached.
/// Source: Megatron Core, masked_dataset.py, _create_masked_lm_predictions; without its permutation.
MaskedTokens mask_word_pieces(std::span<const int64_t> tokens, int64_t target_length,
                              const WordPieceMaskingConfig& config, const WordPieceVocabulary& vocabulary,
                              const Replacement& replacement, NumpyRandomState& random);

}  // namespace megatron
