// Base64 (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace megatron {

/// The bytes that `text` encodes; nullopt if it is not base64 with its padding.
std::optional<std::string> base64_decoded(std::string_view text);

}  // namespace megatron
