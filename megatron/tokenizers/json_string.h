// Texts as JSON.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// The text in quotes; quotes, backslashes and control characters are escaped (RFC 8259, section 7).
std::string json_string(std::string_view text);

}  // namespace megatron
