// The byte layout of Megatron's `<prefix>.idx` and `<prefix>.bin`; all numbers are little-endian.
//   .idx: magic, version (u64), token type (u8), number of sequences N (u64), number of document indices D (u64),
//         N lengths in tokens (i32), N byte offsets into .bin (i64), D document indices (i64: the sequence that each
//         document starts with, and N at the end), and for multimodal data N modes (i8).
//   .bin: the sequences' tokens one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace megatron {

inline constexpr std::array<char, 9> kIndexMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
inline constexpr uint64_t kIndexVersion = 1;
inline constexpr size_t kIndexHeaderBytes = 34;

/// Types of stored tokens; the values are the codes in the file.
enum class TokenType : uint8_t {
  kUInt8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat64 = 6,
  kFloat32 = 7,
  kUInt16 = 8
};

/// Bytes of one token; 0 for a code that the format does not have.
constexpr size_t size_of(TokenType type) {
  switch (type) {
    case TokenType::kUInt8:
    case TokenType::kInt8:
      return 1;
    case TokenType::kInt16:
    case TokenType::kUInt16:
      return 2;
    case TokenType::kInt32:
    case TokenType::kFloat32:
      return 4;
    case TokenType::kInt64:
    case TokenType::kFloat64:
      return 8;
  }
  return 0;
}

/// NumPy's name of the type.
constexpr std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::kUInt8:
      return "uint8";
    case TokenType::kInt8:
      return "int8";
    case TokenType::kInt16:
      return "int16";
    case TokenType::kInt32:
      return "int32";
    case TokenType::kInt64:
      return "int64";
    case TokenType::kFloat64:
      return "float64";
    case TokenType::kFloat32:
      return "float32";
    case TokenType::kUInt16:
      return "uint16";
  }
  return "unknown";
}

/// Calls `body.operator()<T>()` with the C++ type of `type`, which must be a code of the format.
template <class Body>
decltype(auto) dispatch_token_type(TokenType type, Body&& body) {
  switch (type) {
    case TokenType::kUInt8:
      return body.template operator()<uint8_t>();
    case TokenType::kInt8:
      return body.template operator()<int8_t>();
    case TokenType::kInt16:
      return body.template operator()<int16_t>();
    case TokenType::kInt32:
      return body.template operator()<int32_t>();
    case TokenType::kInt64:
      return body.template operator()<int64_t>();
    case TokenType::kFloat64:
      return body.template operator()<double>();
    case TokenType::kFloat32:
      return body.template operator()<float>();
    case TokenType::kUInt16:
      break;
  }
  return body.template operator()<uint16_t>();
}

/// The type that Megatron's preprocessing chooses: uint16 below 65500 tokens, else (or when unknown) int32.
constexpr TokenType optimal_token_type(std::optional<int64_t> vocab_size) {
  return vocab_size.has_value() && *vocab_size < 65500 ? TokenType::kUInt16 : TokenType::kInt32;
}

}  // namespace megatron
