// A config struct's description of itself: one Field per member, bound to one object.
// Command line, help, start banner and JSON are made from it, so that a setting is written down once.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {

/// What a field holds, without its C++ type. monostate is Python's None.
using FieldValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                                std::vector<double>, std::vector<std::string>>;

/// As Python's str(): None, True, 1e-05, ['a', 'b'].
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

}  // namespace field_detail

/// How the words of a flag read.
enum class WordKind { kSwitch, kInteger, kNumber, kText };

/// The default upper bound of whole numbers: products of two of them cannot overflow.
constexpr double kLargestCount = 2147483647;

/// One setting. The setters return the field, so that a description reads as one sentence.
struct Field {
  std::string name;                    ///< Megatron's argument name
  std::vector<std::string> flags;      ///< spellings; the first is the one shown. None: derived, not given
  std::vector<std::string> off_flags;  ///< switches: spellings that turn it off
  std::vector<std::string> aliases;    ///< spellings of other versions and scripts: accepted, and named where given
  std::string help;                    ///< one sentence
  std::string unit;                    ///< "tokens", "samples" ...
  WordKind kind = WordKind::kText;
  bool is_list = false;
  size_t min_words = 1;  ///< this and the next: of a list
  std::optional<size_t> max_words;
  std::vector<std::string> choices;
  std::vector<std::string> later_choices;  ///< Megatron's choices that are refused because they are not here yet
  std::map<std::string, std::string> choice_aliases;  ///< other names of choices, which may be later ones
  std::optional<double> least, most;
  bool least_excluded = false, most_excluded = false;
  std::string default_text;                               ///< what a value that is not given follows from
  std::string limit;                                      ///< what of it is supported so far; empty: all
  std::string no_effect;                                  ///< why giving it changes nothing; empty: it has its effect
  std::function<FieldValue(std::string_view)> read_word;  ///< replaces the reading by `kind`; throws ConfigError
  std::function<FieldValue()> get;
  std::function<void(const FieldValue&)> set;  ///< throws ConfigError if the value does not fit

  Field& named(std::vector<std::string> spellings) { return flags = std::move(spellings), *this; }
  Field& turned_off_by(std::vector<std::string> spellings) {
    return flags.clear(), off_flags = std::move(spellings), *this;
  }
  Field& also_turned_off_by(std::string spelling) { return off_flags.push_back(std::move(spelling)), *this; }
  Field& also(std::vector<std::string> spellings) { return aliases = std::move(spellings), *this; }
  Field& one_of(std::vector<std::string> names) { return choices = std::move(names), *this; }
  Field& later(std::vector<std::string> names) { return later_choices = std::move(names), *this; }
  Field& choice_also(std::string alias, std::string choice) {
    return choice_aliases.emplace(std::move(alias), std::move(choice)), *this;
  }
  Field& in(std::string unit_name) { return unit = std::move(unit_name), *this; }
  Field& at_least(double bound) { return least = bound, *this; }
  Field& above(double bound) { return least = bound, least_excluded = true, *this; }
  Field& at_most(double bound) { return most = bound, *this; }
  Field& below(double bound) { return most = bound, most_excluded = true, *this; }
  Field& by_default(std::string text) { return default_text = std::move(text), *this; }
  Field& limited_to(std::string text) { return limit = std::move(text), *this; }
  Field& may_be_empty() { return min_words = 0, *this; }
  Field& exactly(size_t num_words) { return min_words = num_words, max_words = num_words, *this; }
  Field& without_effect(std::string reason) { return no_effect = std::move(reason), *this; }
  Field& read_by(std::function<FieldValue(std::string_view)> reader) { return read_word = std::move(reader), *this; }

  bool given_by_flag() const { return !flags.empty() || !off_flags.empty(); }
  /// The spelling to name it by in texts.
  const std::string& spelling() const { return flags.empty() ? off_flags.front() : flags.front(); }
};

struct FieldGroup {
  std::string title;
  std::string text;  ///< what the group is about, for --help
  std::deque<Field> fields;
};

/// All fields of an object, in groups. It refers to the object's members, which must outlive it and stay in place.
///
///     FieldTable table;
///     table.begin_group("Size", "How large the model is.");
///     table.add("num_layers", config.num_layers, "decoder layers").at_least(1);  // --num-layers
class FieldTable {
 public:
  void begin_group(std::string title, std::string text) { groups_.push_back({std::move(title), std::move(text), {}}); }

  /// A setting whose flag is "--" and the name with dashes. A bool becomes a switch that turns it on.
  template <class T>
  Field& add(std::string_view name, T& value, std::string_view help) {
    Field& field = append<T>(name, help);
    field.get = [&value] { return field_detail::Conversion<T>::to(value); };
    field.set = [&value](const FieldValue& held) { value = field_detail::Conversion<T>::from(held); };
    return field;
  }
  /// A bool that is on by default: its flags are --no-NAME and --disable-NAME.
  Field& add_on(std::string_view name, bool& value, std::string_view help);
  /// A setting of a type that has no conversion: the caller sets `get`, `set` and `read_word`.
  Field& add_untyped(std::string_view name, WordKind kind, std::string_view help) {
    return append_plain(name, help, kind, false);
  }
  /// What follows from other settings: shown and stored, not given.
  template <class T>
  Field& add_derived(std::string_view name, T& value, std::string_view help) {
    return add(name, value, help).named({});
  }

  const std::deque<FieldGroup>& groups() const { return groups_; }
  std::deque<FieldGroup>& groups() { return groups_; }
  /// The field with this name, or null.
  Field* find(std::string_view name);
  /// Calls `visit(const Field&)` for each field, in order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const FieldGroup& group : groups_)
      for (const Field& field : group.fields) visit(field);
  }

 private:
  template <class T>
  Field& append(std::string_view name, std::string_view help);
  Field& append_plain(std::string_view name, std::string_view help, WordKind kind, bool is_list);

  std::deque<FieldGroup> groups_;
};

namespace field_detail {

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

template <class T>
Field& FieldTable::append(std::string_view name, std::string_view help) {
  using Element = typename field_detail::ElementOf<T>::type;
  constexpr WordKind kind = std::is_same_v<Element, bool>      ? WordKind::kSwitch
                            : std::is_same_v<Element, int64_t> ? WordKind::kInteger
                            : std::is_same_v<Element, double>  ? WordKind::kNumber
                                                               : WordKind::kText;
  Field& field = append_plain(name, help, kind, field_detail::ElementOf<T>::is_list);
  if (kind == WordKind::kInteger) field.most = kLargestCount;
  if constexpr (NamedEnum<Element>)
    for (const auto& [enumerator, choice] : names_of_enum(Element{})) field.choices.emplace_back(choice);
  return field;
}

}  // namespace megatron
