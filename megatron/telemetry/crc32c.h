// CRC-32C (Castagnoli), the check sum of TFRecord files.
#pragma once

#include <cstdint>
#include <string_view>

namespace megatron {

/// Reflected polynomial 0x82F63B78, initial and final complement; "123456789" gives 0xE3069283 (RFC 3720, B.4).
std::uint32_t crc32c(std::string_view bytes);

/// The form that TFRecord stores: rotated right by 15 bits plus 0xA282EAD8, so that a check sum over data that holds
/// check sums does not degenerate.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace megatron
