// Command-line flags with the semantics of Python's argparse, driven by a FieldTable.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/field.h"
#include "megatron/base/mistakes.h"

namespace megatron {

/// Flags that are known and refused, each with the text that says why and what to do instead.
using RefusedFlags = std::map<std::string, std::string, std::less<>>;

/// Names of the fields that were given, each with the spelling of its flag that was used last.
using GivenFields = std::map<std::string, std::string, std::less<>>;

/// Sets the fields that `words` name. As argparse: `--flag value`, `--flag=value`, lists up to the next flag, the last
/// of several wins, no abbreviations. Two differences: a number with minus and exponent (-1e-5) is a value, not a flag;
/// nan and inf are refused. Whatever is wrong is added to `mistakes`; parsing goes on behind it.
GivenFields parse_flags(FieldTable& table, std::span<const std::string> words, const RefusedFlags& refused,
                        Mistakes& mistakes);

/// The member of `names` that `word` was most likely meant to be; empty if none is near.
/// Nearness: edits with swaps of neighbours, at most a third of the word; or the only name that starts with `word`.
std::string nearest_name(std::string_view word, std::span<const std::string> names);

}  // namespace megatron
