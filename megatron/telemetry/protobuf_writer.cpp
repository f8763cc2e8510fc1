#include "megatron/telemetry/protobuf_writer.h"

#include <bit>
#include <concepts>

namespace megatron {
namespace {

enum WireType : unsigned { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

template <std::unsigned_integral T>
std::string low_byte_first(T value) {
  std::string bytes;
  for (unsigned shift = 0; shift < 8 * sizeof(T); shift += 8) bytes += static_cast<char>((value >> shift) & 0xFFu);
  return bytes;
}

}  // namespace

ProtobufWriter& ProtobufWriter::add_varint(int field, std::int64_t value) {
  put_key(field, kVarint);
  put_varint(static_cast<std::uint64_t>(value));
  return *this;
}

ProtobufWriter& ProtobufWriter::add_float(int field, float value) {
  put_key(field, kFixed32);
  bytes_ += little_endian_bytes(std::bit_cast<std::uint32_t>(value));
  return *this;
}

ProtobufWriter& ProtobufWriter::add_double(int field, double value) {
  put_key(field, kFixed64);
  bytes_ += little_endian_bytes(std::bit_cast<std::uint64_t>(value));
  return *this;
}

ProtobufWriter& ProtobufWriter::add_bytes(int field, std::string_view value) {
  put_key(field, kLengthDelimited);
  put_varint(value.size());
  bytes_ += value;
  return *this;
}

void ProtobufWriter::put_varint(std::uint64_t value) {
  for (; value >= 0x80u; value >>= 7) bytes_ += static_cast<char>((value & 0x7Fu) | 0x80u);
  bytes_ += static_cast<char>(value);
}

void ProtobufWriter::put_key(int field, unsigned wire_type) {
  put_varint((static_cast<std::uint64_t>(field) << 3) | wire_type);
}

std::string little_endian_bytes(std::uint32_t value) { return low_byte_first(value); }
std::string little_endian_bytes(std::uint64_t value) { return low_byte_first(value); }

}  // namespace megatron
