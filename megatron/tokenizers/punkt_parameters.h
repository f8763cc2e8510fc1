// The trained parameters of a Punkt sentence splitter.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace megatron {

/// Punkt's knowledge of a language. Without parameters it knows no abbreviations.
/// Source: Kiss and Strunk 2006, Unsupervised Multilingual Sentence Boundary Detection; NLTK's PunktParameters.
struct PunktParameters {
  /// In which positions and cases a word has been seen.
  enum Context : uint32_t {
    kBeginUpper = 1 << 1,
    kMiddleUpper = 1 << 2,
    kUnknownUpper = 1 << 3,
    kBeginLower = 1 << 4,
    kMiddleLower = 1 << 5,
    kUnknownLower = 1 << 6,
    kUpper = kBeginUpper | kMiddleUpper | kUnknownUpper,
    kLower = kBeginLower | kMiddleLower | kUnknownLower
  };

  std::unordered_set<std::string> abbreviations;  ///< in lower case, without the last period
  std::unordered_set<std::string> collocations;   ///< FIRST, a tab and SECOND: a period between them ends no sentence
  std::unordered_set<std::string> sentence_starters;
  std::unordered_map<std::string, uint32_t> contexts;  ///< of a word in lower case: bits of Context

  bool is_collocation(std::string_view first, std::string_view second) const;
  /// Bits of Context; 0 for a word that is not known.
  uint32_t context_of(const std::string& type) const;
};

/// Reads a folder of NLTK's punkt_tab: abbrev_types.txt, collocations.tab, ortho_context.tab and sent_starters.txt.
/// @throw DataError if a file is missing, or naming the file and line of an entry that is malformed.
PunktParameters read_punkt_parameters(const std::string& folder);

}  // namespace megatron
