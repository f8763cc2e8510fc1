// The printable alphabet in which byte-level vocabularies write bytes.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace megatron {

/// GPT-2's map: bytes 33-126, 161-172 and 174-255 stand for the characters of the same number, the other 68, in
/// increasing order, for U+0100, U+0101, ... Entry b is the UTF-8 of the character of byte b.
std::array<std::string, 256> byte_alphabet();

/// The bytes that a token of this alphabet stands for; nullopt if one of its characters is not of the alphabet.
std::optional<std::string> bytes_of_alphabet(std::string_view token);

}  // namespace megatron
