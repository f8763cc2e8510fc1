// Classes of characters and lower case as Python's str and re have them.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// str.isspace(), and \s of a pattern: white space, and the separators U+001C to U+001F.
bool is_python_space(char32_t code_point);
/// \d of a pattern: general category Nd.
bool is_python_decimal(char32_t code_point);
/// [^\W\d] of a pattern: letters, numbers that are no decimal digits, and the underscore.
bool is_python_letter(char32_t code_point);
/// str.isupper() and str.islower() of one character: the properties Uppercase and Lowercase.
bool is_python_upper(char32_t code_point);
bool is_python_lower(char32_t code_point);

/// str.lower() of valid UTF-8, with the form of the Greek sigma that ends a word.
std::string python_lower(std::string_view valid);

}  // namespace megatron
