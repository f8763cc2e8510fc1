// Values of a chat template.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace megatron::chat_template {

class Value;
using List = std::vector<Value>;
/// Keys are strings, in the order in which they were added.
using Dict = std::vector<std::pair<std::string, Value>>;

struct Arguments;
using Callable = std::function<Value(const Arguments&)>;

/// A value of Python's as templates see it. Copies share lists and dicts, which never change but for a namespace's.
class Value {
 public:
  struct Undefined {};
  struct None {};
  using ListPtr = std::shared_ptr<const List>;
  using DictPtr = std::shared_ptr<Dict>;
  using CallablePtr = std::shared_ptr<const Callable>;

  Value() : held_(Undefined{}) {}
  Value(None none) : held_(none) {}
  Value(bool value) : held_(value) {}
  Value(int64_t value) : held_(value) {}
  Value(double value) : held_(value) {}
  Value(std::string value) : held_(std::move(value)) {}
  Value(const char* value) : held_(std::string(value)) {}
  Value(List value) : held_(std::make_shared<const List>(std::move(value))) {}
  Value(Dict value) : held_(std::make_shared<Dict>(std::move(value))) {}
  Value(Callable value) : held_(std::make_shared<const Callable>(std::move(value))) {}

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(held_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_string() const { return is<std::string>(); }
  bool is_list() const { return is<ListPtr>(); }
  bool is_dict() const { return is<DictPtr>(); }
  bool is_integer() const { return is<int64_t>() || is<bool>(); }
  bool is_number() const { return is_integer() || is<double>(); }

  const std::string& string() const { return std::get<std::string>(held_); }
  const List& list() const { return *std::get<ListPtr>(held_); }
  const Dict& dict() const { return *std::get<DictPtr>(held_); }
  Dict& mutable_dict() const { return *std::get<DictPtr>(held_); }
  const Callable& callable() const { return *std::get<CallablePtr>(held_); }
  /// True is 1. @throw std::bad_variant_access if it is no integer.
  int64_t integer() const { return is<bool>() ? int64_t{std::get<bool>(held_)} : std::get<int64_t>(held_); }
  double number() const { return is<double>() ? std::get<double>(held_) : static_cast<double>(integer()); }

  /// Python's bool().
  bool is_true() const;
  /// The value of a key of a dict, or nullptr.
  const Value* find(std::string_view key) const;
  /// What kind of value it is, for errors.
  std::string_view kind() const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, std::string, ListPtr, DictPtr, CallablePtr> held_;
};

struct Arguments {
  List positional;
  Dict named;
};

/// Python's ==.
bool equal(const Value& a, const Value& b);
/// Python's <. @throw DataError for kinds that have no order.
bool less(const Value& a, const Value& b);
/// Python's str(): what a template prints. An undefined value is empty.
std::string text_of(const Value& value);
/// Python's json.dumps with ensure_ascii=False. @param indent  spaces of each level, or -1 for one line.
std::string json_of(const Value& value, int64_t indent);
/// A JSON document as a value. @throw DataError naming `where` if it is damaged.
Value parse_json(std::string_view json, std::string_view where);

}  // namespace megatron::chat_template
