// The value of a setting without its C++ type, and how C++ types convert to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace megatron {

/// The value of a field, without its C++ type. monostate is Python's None.
using FieldValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                                std::vector<double>, std::vector<std::string>>;

/// Writes a value as Python's str(): None, True, 1e-05, ['a', 'b'].
std::string python_text(const FieldValue& value);

/// An enum that can be a field has names_of_enum(E) beside it: an array of {enumerator, name}. An enumerator without a
/// name must be the first one; it stands for None.
template <class T>
concept NamedEnum = std::is_enum_v<T> && requires {
  names_of_enum(T{});
};

namespace field_detail {

[[noreturn]] void throw_misfit(const FieldValue& value, std::string_view wanted);

template <class T>
struct Conversion;  // to(const T&) -> FieldValue and from(const FieldValue&) -> T

template <class T>
requires(std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, std::string> ||
         std::is_same_v<T, std::vector<int64_t>> || std::is_same_v<T, std::vector<std::string>>) struct Conversion<T> {
  static FieldValue to(const T& value) { return value; }
  static T from(const FieldValue& value) {
    if (const T* held = std::get_if<T>(&value)) return *held;
    throw_misfit(value, "another kind of value");
  }
};
template <>
struct Conversion<double> {
  static FieldValue to(double value) { return value; }
  static double from(const FieldValue& value) {
    if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
    if (const auto* number = std::get_if<double>(&value)) return *number;
    throw_misfit(value, "a number");
  }
};
/// Stored whole numbers, such as [0, 1], are numbers too, and an empty list has no type.
template <>
struct Conversion<std::vector<double>> {
  static FieldValue to(const std::vector<double>& values) { return values; }
  static std::vector<double> from(const FieldValue& value) {
    if (const auto* numbers = std::get_if<std::vector<double>>(&value)) return *numbers;
    if (const auto* whole = std::get_if<std::vector<int64_t>>(&value)) return {whole->begin(), whole->end()};
    if (const auto* texts = std::get_if<std::vector<std::string>>(&value); texts && texts->empty()) return {};
    throw_misfit(value, "a list of numbers");
  }
};
template <NamedEnum E>
struct Conversion<E> {
  static FieldValue to(E value) {
    for (const auto& [enumerator, name] : names_of_enum(E{}))
      if (enumerator == value) return std::string(name);
    return std::monostate{};
  }
  static E from(const FieldValue& value) {
    if (std::holds_alternative<std::monostate>(value)) return E{};
    if (const auto* text = std::get_if<std::string>(&value))
      for (const auto& [enumerator, name] : names_of_enum(E{}))
        if (name == *text) return enumerator;
    throw_misfit(value, "one of the choices");
  }
};
template <NamedEnum E>
struct Conversion<std::vector<E>> {
  static FieldValue to(const std::vector<E>& values) {
    std::vector<std::string> names;
    names.reserve(values.size());
    for (E value : values) names.push_back(std::get<std::string>(Conversion<E>::to(value)));
    return names;
  }
  static std::vector<E> from(const FieldValue& value) {
    std::vector<E> values;
    for (const std::string& name : Conversion<std::vector<std::string>>::from(value))
      values.push_back(Conversion<E>::from(name));
    return values;
  }
};
template <class T>
struct Conversion<std::optional<T>> {
  static FieldValue to(const std::optional<T>& value) {
    return value ? Conversion<T>::to(*value) : FieldValue(std::monostate{});
  }
  static std::optional<T> from(const FieldValue& value) {
    if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
    return Conversion<T>::from(value);
  }
};

/// The type of the elements of a list or an optional value.
template <class T>
struct ElementOf {
  using type = T;
  static constexpr bool is_list = false;
};
template <class T>
struct ElementOf<std::optional<T>> : ElementOf<T> {};
template <class T>
struct ElementOf<std::vector<T>> {
  using type = T;
  static constexpr bool is_list = true;
};

}  // namespace field_detail
}  // namespace megatron
