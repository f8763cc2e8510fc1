// Names that other programs give to what flags here say.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

class FieldTable;

/// Names of one setting that are no flags, and the flags to suggest for them.
struct FlagSynonym {
  std::string names;        ///< separated by spaces; lower case, words joined by dashes, no leading dashes
  std::string flags;        ///< separated by spaces; those that the command has are suggested
  std::string remark = {};  ///< follows the suggestion; without flags it stands alone
};

/// The flags of all synonyms that have `flag` among their names, with the first remark; nothing if there is none.
/// Dashes and underscores are alike, as are capital letters.
std::optional<FlagSynonym> find_synonym(std::string_view flag, std::span<const FlagSynonym> synonyms);

/// Other programs' names of the fields of a table. A field that cannot be used yet gives its reason instead of its
/// flag.
std::vector<FlagSynonym> synonyms_of(const FieldTable& table);

/// The parts of a text that spaces separate.
std::vector<std::string_view> words_in(std::string_view text);

}  // namespace megatron
