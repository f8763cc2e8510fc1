// The name that a mistyped one was most likely meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// The member of `names` that `word` was most likely meant to be; empty if none is near. Names consist of words joined
/// by dashes or underscores. In this order: the name with the fewest edits (a swap of neighbours counts as one), at
/// most one for every three letters and at most two; the only name that starts with `word`; the only name that contains
/// all words of `word`, if these are at least two.
std::string nearest_name(std::string_view word, std::span<const std::string> names);

}  // namespace megatron
