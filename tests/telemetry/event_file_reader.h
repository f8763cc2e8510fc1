// Reads event files back, apart from the writer's code, for tests.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::testing {

/// Fields of one protocol buffer message in the order in which they stand. Numbers of all kinds are kept as their bits.
struct Message {
  struct Field {
    int number = 0;
    std::uint64_t bits = 0;  // varint, fixed32 or fixed64
    std::string bytes;       // length-delimited
  };
  std::vector<Field> fields;

  /// @throw std::runtime_error on a malformed message.
  static Message parse(std::string_view bytes);
  const Field* find(int number) const;
  double as_double(int number) const;
  float as_float(int number) const;
  std::string text(int number) const;
  Message message(int number) const { return parse(text(number)); }
  std::vector<Message> messages(int number) const;
};

/// Payloads of the records of a TFRecord file.
/// @throw std::runtime_error on a wrong check sum or length.
std::vector<std::string> read_records(std::string_view file);

}  // namespace megatron::testing
