#include "megatron/tokenizers/hugging_face/config_json.h"

#include <algorithm>

namespace megatron::hugging_face {
namespace {
constexpr size_t kMaxIntegerDigits = 18;  // all such integers fit 64 bits

size_t end_of_string(std::string_view json, size_t begin) {
  size_t end = begin + 1;
  while (end < json.size() && json[end] != '"') end += json[end] == '\\' ? 2 : 1;
  return std::min(end + 1, json.size());
}

size_t end_of_number(std::string_view json, size_t begin) {
  return std::min(json.find_first_not_of("0123456789.eE+-", begin), json.size());
}
}  // namespace

std::string with_readable_integers(std::string_view json) {
  std::string readable;
  for (size_t begin = 0, end = 0; begin < json.size(); begin = end) {
    const bool is_digit = json[begin] >= '0' && json[begin] <= '9';
    end = json[begin] == '"' ? end_of_string(json, begin) : is_digit ? end_of_number(json, begin) : begin + 1;
    const std::string_view part = json.substr(begin, end - begin);
    readable += part;
    if (is_digit && part.size() > kMaxIntegerDigits && part.find_first_of(".eE") == std::string_view::npos)
      readable += ".0";
  }
  return readable;
}

}  // namespace megatron::hugging_face
