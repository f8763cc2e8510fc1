// General categories of Unicode 16, which the reference tokenizers have; system libraries may be older.
#pragma once

#include <span>
#include <string_view>

namespace megatron {

/// Code points first .. last have this general category, such as "Lu".
struct CategoryRange {
  char32_t first, last;
  std::string_view category;
};

/// Code points whose category in Unicode 16 is not that of Unicode 14, in order.
std::span<const CategoryRange> categories_since_unicode_14();

/// The general category of a code point in Unicode 16: two letters.
std::string_view general_category(char32_t code_point);

}  // namespace megatron
