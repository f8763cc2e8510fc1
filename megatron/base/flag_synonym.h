// Names that other programs give to what flags here say.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace megatron {

/// Names of one setting that are no flags, and the flags to suggest for them.
struct FlagSynonym {
  std::string_view names;        ///< separated by spaces; lower case, words joined by dashes, no leading dashes
  std::string_view flags;        ///< separated by spaces; those that the command has are suggested
  std::string_view remark = {};  ///< follows the suggestion; without flags it stands alone
};

/// The synonym that has `flag` among its names, or null. Dashes and underscores are alike, as are capital letters.
const FlagSynonym* find_synonym(std::string_view flag, std::span<const FlagSynonym> synonyms);

/// The parts of a text that spaces separate.
std::vector<std::string_view> words_in(std::string_view text);

}  // namespace megatron
