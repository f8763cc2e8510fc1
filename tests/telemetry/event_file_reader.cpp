#include "tests/telemetry/event_file_reader.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace megatron::testing {
namespace {

/// Bit by bit, unlike the table of the writer.
std::uint32_t slow_masked_crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1u) ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

std::string_view take(std::string_view& input, std::uint64_t count) {
  if (count > input.size()) throw std::runtime_error("unexpected end");
  const std::string_view taken = input.substr(0, count);
  input.remove_prefix(count);
  return taken;
}

std::uint64_t take_little_endian(std::string_view& input, std::size_t num_bytes) {
  const std::string_view bytes = take(input, num_bytes);
  std::uint64_t value = 0;
  for (std::size_t i = num_bytes; i-- > 0;) value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::uint64_t take_varint(std::string_view& input) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(input, 1)[0]);
    value |= static_cast<std::uint64_t>(byte & 0x7Fu) << shift;
    if (!(byte & 0x80u)) return value;
  }
  throw std::runtime_error("varint too long");
}

}  // namespace

Message Message::parse(std::string_view bytes) {
  Message message;
  while (!bytes.empty()) {
    const std::uint64_t key = take_varint(bytes);
    Field field{.number = static_cast<int>(key >> 3), .bits = 0, .bytes = ""};
    switch (key & 7u) {
      case 0:
        field.bits = take_varint(bytes);
        break;
      case 1:
        field.bits = take_little_endian(bytes, 8);
        break;
      case 2:
        field.bytes = std::string(take(bytes, take_varint(bytes)));
        break;
      case 5:
        field.bits = take_little_endian(bytes, 4);
        break;
      default:
        throw std::runtime_error("unknown wire type");
    }
    message.fields.push_back(field);
  }
  return message;
}

const Message::Field* Message::find(int number) const {
  const auto found = std::ranges::find(fields, number, &Field::number);
  return found == fields.end() ? nullptr : &*found;
}

double Message::as_double(int number) const { return std::bit_cast<double>(find(number)->bits); }

float Message::as_float(int number) const {
  return std::bit_cast<float>(static_cast<std::uint32_t>(find(number)->bits));
}

std::string Message::text(int number) const { return find(number)->bytes; }

std::vector<Message> Message::messages(int number) const {
  std::vector<Message> result;
  for (const Field& field : fields)
    if (field.number == number) result.push_back(parse(field.bytes));
  return result;
}

std::vector<std::string> read_records(std::string_view file) {
  std::vector<std::string> records;
  while (!file.empty()) {
    std::string_view length_bytes = file.substr(0, 8);
    const std::uint64_t length = take_little_endian(file, 8);
    if (take_little_endian(file, 4) != slow_masked_crc32c(length_bytes)) throw std::runtime_error("length check sum");
    const std::string_view payload = take(file, length);
    if (take_little_endian(file, 4) != slow_masked_crc32c(payload)) throw std::runtime_error("payload check sum");
    records.emplace_back(payload);
  }
  return records;
}

}  // namespace megatron::testing
