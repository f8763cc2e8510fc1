#include "megatron/tokenizers/hugging_face/serde_number.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace megatron::hugging_face {

double serde_number(double nearest) {
  std::array<char, 32> text{};  // "1.25e-07"
  const char* const end =
      std::to_chars(text.data(), text.data() + text.size(), std::abs(nearest), std::chars_format::scientific).ptr;
  const char* const mark = std::find<const char*>(text.data(), end, 'e');
  uint64_t digits = 0;
  for (const char* c = text.data(); c < mark; ++c)
    if (*c != '.') digits = 10 * digits + static_cast<uint64_t>(*c - '0');
  int exponent = 0;
  std::from_chars(mark + (mark[1] == '+' ? 2 : 1), end, exponent);
  exponent -= static_cast<int>(std::max<ptrdiff_t>(0, mark - text.data() - 2));  // the digits behind the point

  auto value = static_cast<double>(digits);
  for (constexpr int kLargest = 308; exponent < -kLargest; exponent += kLargest) value /= 1e308;
  const std::string power_text = fmt::format("1e{}", std::abs(exponent));
  double power = 1;
  std::from_chars(power_text.data(), power_text.data() + power_text.size(), power);
  return std::copysign(exponent < 0 ? value / power : value * power, nearest);
}

}  // namespace megatron::hugging_face
