// Text to sentences, as NLTK's Punkt splits it.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/punkt_parameters.h"

namespace megatron {

struct PunktWord;

/// Splits text into sentences by Punkt: the sentences are those of NLTK 3.9's PunktSentenceTokenizer with the same
/// parameters, in text of Megatron's pieces of a million characters. Immutable: threads may share it.
///
///     const SentenceSplitter splitter(read_punkt_parameters("nltk_data/tokenizers/punkt_tab/english"),
///                                     {.keep_newlines = false});
///     splitter.split("Mr. Fox ran. He won.", sentences);  // "Mr. Fox ran.", "He won."
class SentenceSplitter {
 public:
  struct Options {
    /// White space behind a sentence belongs to it instead of being dropped (Megatron's --keep-newlines).
    bool keep_newlines = false;
  };
  SentenceSplitter(PunktParameters parameters, const Options& options);

  const PunktParameters& parameters() const { return parameters_; }

  /// Appends the sentences, which are parts of `text`.
  /// @throw DataError if `text` is not UTF-8.
  void split(std::string_view text, std::vector<std::string_view>& sentences) const;

 private:
  /// Offsets of a sentence.
  struct Span {
    size_t begin, end;
  };
  /// A character that may end a sentence, with what stands around it.
  struct Candidate {
    size_t begin;  ///< of the match; in front of it is the rest of the word, or nothing with keep_newlines
    size_t end;    ///< of the match
    size_t next_sentence;
    size_t context_end;  ///< behind the next word, or the punctuation that follows
  };
  std::optional<Candidate> find_candidate(std::string_view text, size_t from) const;
  std::optional<Candidate> find_candidate_with_space(std::string_view text, size_t from) const;
  void split_piece(std::string_view piece, std::vector<std::string_view>& sentences) const;
  std::vector<Span> spans_of(std::string_view text) const;
  bool has_sentence_break(std::string_view context) const;
  void mark_alone(PunktWord& word) const;
  void mark_before(PunktWord& word, const PunktWord& next) const;

  PunktParameters parameters_;
  Options options_;
};

}  // namespace megatron
