// Several words in one text.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace megatron {

/// "a", "a and b", "a, b and c".
std::string word_list(const std::vector<std::string_view>& words);

/// The items, as fmt shows them, with `between` in between. Compiles far faster than fmt::join.
template <class Range>
std::string joined(const Range& items, std::string_view between) {
  std::string text;
  bool is_first = true;
  for (const auto& item : items) {
    if (!is_first) text += between;
    is_first = false;
    if constexpr (std::is_convertible_v<decltype(item), std::string_view>)
      text += item;
    else
      text += fmt::format("{}", item);
  }
  return text;
}

}  // namespace megatron
