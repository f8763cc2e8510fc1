// Command-line flags with the semantics of Python's argparse, driven by a FieldTable.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/field.h"
#include "megatron/base/flag_synonym.h"
#include "megatron/base/given_fields.h"
#include "megatron/base/mistakes.h"

namespace megatron {

/// Flags that are known and refused, each with the text that says why and what to do instead.
using RefusedFlags = std::map<std::string, std::string, std::less<>>;

/// The flags that a table does not have, and why.
struct ForeignFlags {
  RefusedFlags refused = {};
  std::span<const FlagSynonym> synonyms = {};  ///< beside those of the table's own fields
};

/// Sets the fields that `words` name. As argparse: `--flag value`, `--flag=value`, lists up to the next flag, the last
/// of several wins, no abbreviations. Two differences: what begins as a negative number does (-1e-5, -1,0) is a value,
/// not a flag; nan and inf are refused. Whatever is wrong is added to `mistakes`; parsing goes on behind it.
GivenFields parse_flags(FieldTable& table, std::span<const std::string> words, const ForeignFlags& foreign,
                        Mistakes& mistakes);

}  // namespace megatron
