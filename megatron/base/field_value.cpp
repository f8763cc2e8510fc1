#include "megatron/base/field_value.h"

#include <fmt/core.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::string text_of(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";  // Python shows that it is a float
  return text;
}
std::string text_of(int64_t number) { return fmt::format("{}", number); }
std::string text_of(const std::string& text) { return fmt::format("'{}'", text); }

template <class T>
std::string text_of(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) text += (text.size() > 1 ? ", " : "") + text_of(value);
  return text + "]";
}

}  // namespace

std::string python_text(const FieldValue& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::monostate>)
          return "None";
        else if constexpr (std::is_same_v<T, bool>)
          return held ? "True" : "False";
        else if constexpr (std::is_same_v<T, std::string>)
          return held;
        else
          return text_of(held);
      },
      value);
}

void field_detail::throw_misfit(const FieldValue& value, std::string_view wanted) {
  throw ConfigError(fmt::format("{} was given where {} is needed", python_text(value), wanted));
}

}  // namespace megatron
