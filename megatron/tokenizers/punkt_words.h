// Words as Punkt sees them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// A word with its type, which is what the statistics of Punkt are about, and marks that the splitter sets.
struct PunktWord {
  explicit PunktWord(std::string_view text);

  std::string_view text;
  std::string type;  ///< in lower case; ##number## for all numbers
  bool ends_in_period;
  bool is_ellipsis;  ///< two or more periods
  bool is_initial;   ///< one letter and a period
  bool starts_upper, starts_lower;
  bool is_abbreviation = false, ends_sentence = false;

  /// The type without its last period.
  std::string_view type_without_period() const;
  /// The type, without its last period if that ends a sentence.
  std::string_view type_in_sentence() const { return ends_sentence ? type_without_period() : std::string_view(type); }
};

/// Says whether a character ends a sentence: . ? !
constexpr bool may_end_sentence(char c) { return c == '.' || c == '?' || c == '!'; }
/// Characters that do not occur within words.
constexpr bool separates_punkt_words(char c) {
  return std::string_view(")\";}]*:@'({[?!").find(c) != std::string_view::npos;
}

/// The words of valid UTF-8, in which punctuation other than periods is a word of its own. No word spans two lines.
std::vector<PunktWord> punkt_words(std::string_view text);

}  // namespace megatron
