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
/// A text or list of any template ends in bounded time and memory: kMaxDepth and kMaxWeight limit every value.
class Value {
 public:
  struct Undefined {};
  struct None {};
  using ListPtr = std::shared_ptr<const List>;
  using DictPtr = std::shared_ptr<Dict>;
  using CallablePtr = std::shared_ptr<const Callable>;
  static constexpr int kMaxDepth = 500;             // of lists and dicts in each other
  static constexpr int64_t kMaxWeight = 1'000'000;  // values in it, and 64 bytes of text each

  Value() : held_(Undefined{}) {}
  Value(None none) : held_(none) {}
  Value(bool value) : held_(value) {}
  Value(int64_t value) : held_(value) {}
  Value(double value) : held_(value) {}
  /// @throw DataError for these three kinds if the value exceeds a limit.
  Value(std::string value);
  Value(List value);
  Value(Dict value);
  Value(const char* value) : Value(std::string(value)) {}
  Value(Callable value) : held_(std::make_shared<const Callable>(std::move(value))) {}
  /// A dict that grows. No list or dict can hold it, so that it never holds itself.
  static Value growing(Dict entries);

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

  /// These throw DataError if it is of another kind.
  const std::string& string() const { return get<std::string>("a string"); }
  const List& list() const { return *get<ListPtr>("a list"); }
  const Dict& dict() const { return *get<DictPtr>("a dict"); }
  Dict& mutable_dict() const { return *get<DictPtr>("a dict"); }
  const Callable& callable() const { return *get<CallablePtr>("a function"); }
  /// True is 1.
  int64_t integer() const { return is<bool>() ? int64_t{get<bool>("")} : get<int64_t>("an integer"); }
  double number() const { return is<double>() ? get<double>("") : static_cast<double>(integer()); }

  int depth() const { return depth_; }
  int64_t weight() const { return weight_; }

  /// Python's bool().
  bool is_true() const;
  /// The value of a key of a dict, or nullptr.
  const Value* find(std::string_view key) const;
  /// Returns the name of its kind, for errors.
  std::string_view kind() const;

 private:
  template <class T>
  const T& get(std::string_view wanted) const {
    if (const T* held = std::get_if<T>(&held_)) return *held;
    fail_as(wanted);
  }
  [[noreturn]] void fail_as(std::string_view wanted) const;
  void add_inner(const Value& value);
  void require_limits() const;

  int depth_ = 0;
  int64_t weight_ = 1;
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
/// @throw DataError for a text that exceeds the limit of a value.
void require_text_size(size_t size);
/// The arguments of Python's json.dumps.
struct JsonStyle {
  int64_t indent = -1;  ///< spaces of each level; -1: one line
  std::string item_separator = ", ", key_separator = ": ";
  bool sorts_keys = false, ensures_ascii = false;
};
std::string json_of(const Value& value, const JsonStyle& style);
/// A JSON document as a value. @throw DataError naming `where` if it is damaged.
Value parse_json(std::string_view json, std::string_view where);

}  // namespace megatron::chat_template
