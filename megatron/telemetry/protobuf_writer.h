// Encodes protocol buffer messages of small fixed schemas: no reflection, no generated code.
// Wire format: https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace megatron {

/// Builds one message field by field, in the order of the calls. A nested message is another writer's bytes().
///
///     ProtobufWriter event;
///     event.add_double(1, wall_time).add_varint(2, step).add_bytes(5, summary.bytes());
class ProtobufWriter {
 public:
  /// int32, int64, uint64, bool and enum fields; negative numbers take ten bytes, as the format says.
  ProtobufWriter& add_varint(int field, std::int64_t value);
  ProtobufWriter& add_float(int field, float value);
  ProtobufWriter& add_double(int field, double value);
  /// string, bytes and message fields.
  ProtobufWriter& add_bytes(int field, std::string_view value);

  const std::string& bytes() const { return bytes_; }

 private:
  void put_varint(std::uint64_t value);
  void put_key(int field, unsigned wire_type);

  std::string bytes_;
};

/// The bytes of an unsigned integer, least significant first, whatever the host's order.
std::string little_endian_bytes(std::uint32_t value);
std::string little_endian_bytes(std::uint64_t value);

}  // namespace megatron
