#include "megatron/tokenizers/byte_alphabet.h"

#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {
constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/// Code point of each byte; all are below 256 + 68.
constexpr std::array<char32_t, 256> code_points() {
  std::array<char32_t, 256> result{};
  char32_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) result[byte] = stands_for_itself(byte) ? byte : next++;
  return result;
}

constexpr std::array<int, 256 + 68> bytes_by_code_point() {
  std::array<int, 256 + 68> result{};
  result.fill(-1);
  for (int byte = 0; byte < 256; ++byte) result[code_points()[static_cast<size_t>(byte)]] = byte;
  return result;
}
}  // namespace

std::array<std::string, 256> byte_alphabet() {
  std::array<std::string, 256> result;
  for (size_t byte = 0; byte < 256; ++byte) append_utf8(code_points()[byte], result[byte]);
  return result;
}

std::optional<std::string> bytes_of_alphabet(std::string_view token) {
  static constexpr std::array<int, 256 + 68> kBytes = bytes_by_code_point();
  std::string bytes;
  for (size_t offset = 0; offset < token.size(); offset += utf8_length(token[offset])) {
    const char32_t code_point = code_point_at(token, offset);
    if (code_point >= kBytes.size() || kBytes[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[code_point]));
  }
  return bytes;
}

}  // namespace megatron
