// Finds the place at which a text breaks the rules of JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace megatron {

struct JsonFault {
  size_t offset;         ///< in bytes
  std::string expected;  ///< "a comma or '}'"
};

/// The first fault of a text that is to be one JSON object, as Python's json.loads sees it: RFC 8259 and the numbers
/// NaN, Infinity and -Infinity; strings hold no control characters. That the text is UTF-8 is not looked at, nor
/// whether \u escapes pair up.
std::optional<JsonFault> find_json_fault(std::string_view text);

}  // namespace megatron
