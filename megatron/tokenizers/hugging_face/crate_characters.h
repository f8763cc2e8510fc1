// Classes of characters and normal forms as in the Rust crates of tokenizers 0.23, whose Unicode versions differ.
#pragma once

#include <string>
#include <string_view>

#include "megatron/tokenizers/unicode.h"

namespace megatron::hugging_face {

/// General categories P* of an early Unicode, and the ASCII symbols: $ + < = > ^ ` | ~.
bool is_punctuation(char32_t code_point);
/// General category Mn of an early Unicode.
bool is_nonspacing_mark(char32_t code_point);
/// General categories Cc, Cf and Co of an early Unicode.
bool is_control_or_format(char32_t code_point);
/// General categories N* of Unicode 17.
bool is_number(char32_t code_point);
/// Appends the lower case of a character by Unicode 17.
void append_lower(char32_t code_point, std::string& text);
/// A normal form by Unicode 11. @param valid  valid UTF-8.
std::string in_form(std::string_view valid, NormalForm form);

}  // namespace megatron::hugging_face
