// Unicode: normal forms, lower case, classes of characters, grapheme clusters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace megatron {

/// Unicode Standard Annex 15.
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
/// @param valid  valid UTF-8.
std::string normalized(std::string_view valid, NormalForm form);

/// Appends the lower case of a character, which may be several: "i" and U+0307 for U+0130.
void append_lower_case(char32_t code_point, std::string& text);

/// The property White_Space.
bool is_white_space(char32_t code_point);
/// General categories Mn, Mc and Me.
bool is_mark(char32_t code_point);

/// Bytes of the extended grapheme cluster (Unicode Standard Annex 29) of valid UTF-8 that starts at `offset`.
size_t grapheme_length(std::string_view valid, size_t offset);

}  // namespace megatron
