// Command lines written as one text.
#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace megatron::testing {

using Words = std::vector<std::string>;

/// The words between white space; nothing is quoted.
inline Words words_of(const std::string& text) {
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;) words.push_back(std::move(word));
  return words;
}

inline Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace megatron::testing
