// Python objects as a pickle describes them: data to look at, never code to run.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace megatron::pickle {

enum class Kind : uint8_t {
  kNone,
  kBool,
  kInt,
  kBigInt,  // beyond 64 bits
  kFloat,
  kString,  // UTF-8
  kBytes,
  kByteArray,
  kList,
  kTuple,
  kSet,
  kFrozenSet,
  kDict,
  kGlobal,      // module and name of something that is not imported
  kPersistent,  // something outside of the pickle, by its id
  kReduce,      // callable(*arguments), not called
  kNewObject    // class.__new__(class, *arguments), not called
};
std::string_view name_of(Kind kind);

class Object;
struct Entry {
  Object* key = nullptr;
  Object* value = nullptr;
};

/// An instance that a kReduce or kNewObject made: callable, arguments, and the values that were added afterwards.
struct Instance {
  Object* callable = nullptr;
  Object* arguments = nullptr;
  Object* keywords = nullptr;  // null but for __newobj_ex__
  Object* state = nullptr;     // what __setstate__ or __dict__ got; null if nothing
  std::vector<Object*> items;  // appended
  std::vector<Entry> entries;  // set by key
};

/// A node of a Graph. Every accessor throws CheckpointError, naming what was wanted and found, on another kind.
class Object {
 public:
  using Payload = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<Object*>,
                               std::vector<Entry>, std::unique_ptr<Instance>>;
  Object(Kind kind, Payload payload) : kind_(kind), payload_(std::move(payload)) {}

  Kind kind() const { return kind_; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool as_bool() const;
  int64_t as_int() const;
  /// Also of an int.
  double as_float() const;
  const std::string& as_string() const;
  /// kBytes, kByteArray; kBigInt as little-endian two's complement; and `_codecs.encode(text, "latin1")`, as which
  /// protocols below 3 store bytes.
  std::string as_bytes() const;

  /// Elements of a list, tuple or set.
  std::span<Object* const> items() const;
  /// The entries of a dict, in its order.
  std::span<const Entry> entries() const;
  /// Value of a string key: of a dict, or of the attributes of an instance. Null if there is none.
  const Object* find(std::string_view key) const;
  const Object& at(std::string_view key) const;

  bool is_global(std::string_view module, std::string_view name) const;
  const std::string& global_module() const { return global_part(0).as_string(); }
  const std::string& global_name() const { return global_part(1).as_string(); }
  /// Module (0) or name (1) as an object: a pickle may share them.
  const Object& global_part(size_t index) const { return named_part(Kind::kGlobal, index); }
  const Object& persistent_id() const { return named_part(Kind::kPersistent, 0); }
  bool is_instance() const { return kind_ == Kind::kReduce || kind_ == Kind::kNewObject; }
  /// An instance whose callable or class has this name.
  bool is_instance_of(std::string_view module, std::string_view name) const;
  const Instance& instance() const;

  /// For those who build graphs. An instance takes items and entries too.
  std::vector<Object*>& mutable_items();
  std::vector<Entry>& mutable_entries();
  Instance& mutable_instance();

 private:
  template <class T, class Self>
  static auto& get(Self& self, std::string_view wanted);
  const Object& named_part(Kind kind, size_t index) const;

  Kind kind_;
  Payload payload_;
};

/// Owns objects that refer to each other by pointer, so that shared and cyclic references are kept and nothing is freed
/// recursively. Objects stay where they are when the graph moves. Example, {"iteration": 10}:
///   Object& state = graph.dict();
///   graph.set(state, "iteration", graph.integer(10));
class Graph {
 public:
  Object& none();
  Object& boolean(bool value);
  Object& integer(int64_t value);
  Object& real(double value);
  Object& text(std::string value);
  Object& list(std::vector<Object*> items);
  Object& tuple(std::vector<Object*> items);
  Object& dict();
  Object& global(std::string module, std::string name);
  /// callable(*arguments)
  Object& reduce(Object& callable, std::vector<Object*> arguments);
  /// Object of a class without constructor arguments. Its state is a dict of attributes, or whatever its __setstate__
  /// takes, or null for none.
  Object& instance(Object& type, Object* state);
  Object& persistent(Object& id);
  /// Any kind, for readers.
  Object& add(Kind kind, Object::Payload payload);

  /// Appends to a dict, or to the attributes of an instance whose state is a dict.
  void set(Object& target, std::string key, Object& value);

 private:
  std::deque<Object> objects_;
};

}  // namespace megatron::pickle
