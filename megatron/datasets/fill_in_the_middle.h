// Samples for learning to fill in the middle of a text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/datasets/numpy_random.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// Cuts texts of a sample into prefix, middle and suffix at random places and puts the middle last: PREFIX prefix
/// SUFFIX suffix MIDDLE middle (PSM), or PREFIX SUFFIX suffix MIDDLE prefix middle (SPM). Immutable: threads may share
/// it. Source: Bavarian et al. 2022 (arXiv:2207.14255); Megatron-LM, GPTFIMDataset.
class FillInTheMiddle {
 public:
  struct Options {
    double rate = 0.5;      ///< of documents that are changed
    double spm_rate = 0.5;  ///< of changed texts that have the form SPM
    /// Documents with this token are cut there into fragments, such as the files of a repository; `rate` then decides
    /// on the document, and `fragment_rate` on each fragment.
    std::optional<TokenId> split_sample = std::nullopt;
    double fragment_rate = 0.5;
    std::optional<std::string> no_prefix = std::nullopt;  ///< texts that begin so are left as they are
    TokenId prefix, middle, suffix, pad, eod;
    std::vector<TokenId> special_tokens;  ///< are left out of the text of a document
  };
  /// @param tokenizer  must outlive this; reads the text of a document and encodes the parts of it.
  /// @throw ConfigError for rates outside of (0, 1] or a special token outside of the vocabulary
  FillInTheMiddle(const Tokenizer& tokenizer, Options options);

  /// Replaces a sample by one of the same length: what is too long is cut off, and what is short is padded. Of the same
  /// stream of random numbers it makes the sample that Megatron makes.
  /// @throw DataError for a token outside of the vocabulary
  void apply(std::vector<int64_t>& sample, NumpyRandomState& random) const;

 private:
  using Tokens = std::vector<int64_t>;
  struct Source {
    NumpyRandomState& random;
    TextEncoder& encoder;
  };
  void permute_document(std::span<const int64_t> document, const Source& source, Tokens& out) const;
  void permute(std::span<const int64_t> text, double rate, const Source& source, Tokens& out) const;
  std::string text_of(std::span<const int64_t> tokens) const;

  const Tokenizer& tokenizer_;
  Options options_;
};

}  // namespace megatron
