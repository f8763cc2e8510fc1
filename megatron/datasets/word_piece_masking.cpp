#include "megatron/datasets/word_piece_masking.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "megatron/datasets/blend_index.h"

namespace megatron {
namespace {

constexpr double kGeometricProbability = 0.2;

/// Positions that are masked together at least: words, or tokens.
std::vector<std::vector<size_t>> words_of(std::span<const int64_t> tokens, const WordPieceMaskingConfig& config,
                                          const WordPieceVocabulary& vocabulary) {
  std::vector<std::vector<size_t>> words;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == vocabulary.cls || tokens[i] == vocabulary.sep) continue;
    const bool continues = vocabulary.continues_word[static_cast<size_t>(tokens[i])];
    if (continues && config.masking_do_full_word && !words.empty())
      words.back().push_back(i);
    else
      words.push_back({i});
  }
  return words;
}

/// The probability of n words, n = 1, 2, ...
std::vector<double> ngram_probabilities(const WordPieceMaskingConfig& config) {
  std::vector<double> probabilities;
  for (int64_t n = 1; n <= config.masking_max_ngram; ++n) probabilities.push_back(1.0 / static_cast<double>(n));
  probabilities = normalize_weights(probabilities);
  if (config.masking_use_longer_ngrams) std::ranges::reverse(probabilities);
  return normalize_weights(probabilities);
}

}  // namespace

MaskedTokens mask_word_pieces(std::span<const int64_t> tokens, int64_t target_length,
                              const WordPieceMaskingConfig& config, const WordPieceVocabulary& vocabulary,
                              const Replacement& replacement, NumpyRandomState& random) {
  const std::vector<std::vector<size_t>> words = words_of(tokens, config, vocabulary);
  const double most =
      std::min(config.masking_probability * static_cast<double>(target_length),
               std::max(1.0, std::nearbyint(static_cast<double>(tokens.size()) * config.masking_probability)));
  const std::vector<double> probabilities = ngram_probabilities(config);
  const auto draw_length = [&] {
    if (!config.masking_use_geometric_distribution) return static_cast<int64_t>(random.choice(probabilities)) + 1;
    return std::min(random.geometric(kGeometricProbability), config.masking_max_ngram);
  };
  std::vector<size_t> starts(words.size());
  std::iota(starts.begin(), starts.end(), size_t{0});
  random.shuffle(std::span(starts));

  MaskedTokens masked{.tokens = {tokens.begin(), tokens.end()}, .spans = {}};
  std::vector<bool> is_masked(tokens.size());
  size_t num_masked = 0;
  for (const size_t start : starts) {
    if (static_cast<double>(num_masked) >= most) break;
    MaskedSpan span;
    for (int64_t length = draw_length(); length > 0; --length) {
      span.positions.clear();
      for (size_t w = start; w < std::min(start + static_cast<size_t>(length), words.size()); ++w)
        span.positions.insert(span.positions.end(), words[w].begin(), words[w].end());
      if (most >= static_cast<double>(num_masked + span.positions.size())) break;
      span.positions.clear();
    }
    if (span.positions.empty() || std::ranges::any_of(span.positions, [&](size_t i) { return is_masked[i]; })) continue;
    for (const size_t i : span.positions) {
      is_masked[i] = true;
      masked.tokens[i] = replacement(tokens[i], random);
      span.tokens.push_back(tokens[i]);
    }
    num_masked += span.positions.size();
    masked.spans.push_back(std::move(span));
  }
  std::ranges::sort(masked.spans, {}, [](const MaskedSpan& span) { return span.positions.front(); });
  return masked;
}

}  // namespace megatron
