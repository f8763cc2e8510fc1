// Words of the patterns that most byte-level tokenizers have, found without a regular expression engine.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "megatron/tokenizers/character_masks.h"

namespace megatron {

/// What a family of patterns has in common, and where its members differ.
struct WordRules {
  enum class Family {
    kGpt2,    ///< a word is letters, digits or other characters, each with a space in front
    kLlama3,  ///< letters take any one character in front, digits take none; line ends stay with other characters
    kO200k,   ///< as kLlama3, and a word ends where lower case is followed by upper case
  };
  Family family;
  size_t max_digits = 0;           ///< in a word; 0: no limit
  bool has_contractions = true;    ///< 's 't 're 've 'm 'll 'd are words; with kO200k they end words
  bool keeps_final_space = false;  ///< white space at the end of the text is one word, with line ends or without
  bool keeps_slashes = false;      ///< slashes stay with other characters, as line ends do

  /// The rules of a pattern in Perl syntax; nullopt if it is none of those that are known.
  static std::optional<WordRules> of(std::string_view pattern);
};

/// Cuts texts as a pattern does. One thread uses it at a time. Refers to the sets of characters.
class WordScanner {
 public:
  WordScanner(const WordRules& rules, const CharacterSets& sets) : rules_(rules), sets_(sets) {}

  /// Calls `f(word)` for the words of a text, in order; put together they are the text.
  /// @param valid  valid UTF-8.
  template <class F>
  void for_each_word(std::string_view valid, F&& f) {
    while (!valid.empty()) {
      const std::string_view part = valid.substr(0, independent_part(valid));
      masks_.fill(part, sets_);
      for (size_t begin = 0; begin < part.size();) {
        const size_t end = end_of_word(part, begin);
        f(part.substr(begin, end - begin));
        begin = end;
      }
      valid.remove_prefix(part.size());
    }
  }

 private:
  /// Bytes from the start of a text whose words do not depend on what follows.
  static size_t independent_part(std::string_view valid);

  /// Most words are a space and letters, which all families with one case take alike.
  size_t end_of_word(std::string_view text, size_t begin) const {
    const size_t core = begin + (text[begin] == ' ' ? 1 : 0);
    if (rules_.family != WordRules::Family::kO200k && masks_.contains(CharacterSet::kLetter, core))
      return masks_.end_of_run(CharacterSet::kLetter, core);
    return rules_.family == WordRules::Family::kGpt2 ? end_of_gpt2_word(text, begin) : end_of_llama3_word(text, begin);
  }
  size_t end_of_gpt2_word(std::string_view text, size_t begin) const;
  size_t end_of_llama3_word(std::string_view text, size_t begin) const;
  size_t end_of_letters(std::string_view text, size_t begin) const;
  size_t end_of_cased_letters(size_t begin) const;
  size_t end_of_digits(std::string_view text, size_t begin) const;
  size_t end_of_others(std::string_view text, size_t begin) const;
  size_t end_of_white_space(std::string_view text, size_t begin) const;

  WordRules rules_;
  const CharacterSets& sets_;
  CharacterMasks masks_;
};

}  // namespace megatron
