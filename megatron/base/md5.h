// MD5, for names of cache files and to tell files apart: it gives no security.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace megatron {

/// MD5 of `data` (RFC 1321) as 32 lower-case hexadecimal digits.
std::string md5_hex(std::span<const std::byte> data);

}  // namespace megatron
