#include "tests/dist_checkpointing/tagged_json.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "megatron/dist_checkpointing/pickle/pickle_text.h"
#include "megatron/dist_checkpointing/sha256.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

using nlohmann::json;
using pickle::Kind;
using pickle::Object;

/// Collects the first difference.
class Comparison {
 public:
  explicit Comparison(const TorchFile* file) : file_(file) {}
  ::testing::AssertionResult result() const {
    if (difference_.empty()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << difference_;
  }

  void compare(const Object& object, const json& expected, const std::string& where);

 private:
  void differ(const std::string& where, const std::string& what) {
    if (difference_.empty()) difference_ = where + ": " + what;
  }
  void check(bool equal, const std::string& where, const json& expected) {
    if (!equal) differ(where, "differs from " + expected.dump().substr(0, 200));
  }
  void compare_tagged(const Object& object, const json& expected, const std::string& where);
  void compare_items(std::span<Object* const> items, const json& expected, const std::string& where);
  void compare_entries(const Object& object, const json& expected, const std::string& where);
  void compare_set(const Object& object, const json& expected, const std::string& where);
  void compare_ints(const Object& object, int64_t count, int64_t sum, const std::string& where);
  void compare_tensor(const Object& object, const json& expected, const std::string& where);
  void compare_array(const Object& object, const json& expected, const std::string& where);
  void compare_elements(std::string_view bytes, ElementType type, const json& expected, const std::string& where);
  void compare_named(const Object& object, const std::string& repr, const std::string& where);

  const TorchFile* file_;
  std::string difference_;
};

std::string hex(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return digits;
}

/// An eight-bit float with this many bits of mantissa.
double decode_float8(uint8_t bits, int mantissa_bits, int bias) {
  const int exponent = (bits & 0x7F) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double value = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                     : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  return bits & 0x80 ? -value : value;
}

template <class T>
double as(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return static_cast<double>(value);
}

double element(const char* bytes, ElementType type) {
  using enum ElementType;
  switch (type) {
    case kBool:
    case kUInt8:
      return as<uint8_t>(bytes);
    case kInt8:
      return as<int8_t>(bytes);
    case kInt16:
      return as<int16_t>(bytes);
    case kUInt16:
      return as<uint16_t>(bytes);
    case kInt32:
      return as<int32_t>(bytes);
    case kUInt32:
      return as<uint32_t>(bytes);
    case kInt64:
      return as<int64_t>(bytes);
    case kFloat16:
      return as<Float16>(bytes);
    case kBFloat16:
      return as<BFloat16>(bytes);
    case kFloat32:
      return as<float>(bytes);
    case kFloat64:
      return as<double>(bytes);
    case kFloat8E4M3:
      return decode_float8(static_cast<uint8_t>(*bytes), 3, 7);
    case kFloat8E5M2:
      return decode_float8(static_cast<uint8_t>(*bytes), 2, 15);
    default:
      throw InternalError("no test reads this element type");
  }
}

void flatten(const json& values, std::vector<double>& flat) {
  if (values.is_array())
    for (const json& value : values) flatten(value, flat);
  else
    flat.push_back(values.is_boolean() ? values.get<bool>() : values.get<double>());
}

void Comparison::compare(const Object& object, const json& expected, const std::string& where) {
  switch (expected.type()) {
    case json::value_t::null:
      return check(object.is_none(), where, expected);
    case json::value_t::boolean:
      return check(object.kind() == Kind::kBool && object.as_bool() == expected.get<bool>(), where, expected);
    case json::value_t::number_integer:
    case json::value_t::number_unsigned:
      return check(object.kind() == Kind::kInt && object.as_int() == expected.get<int64_t>(), where, expected);
    case json::value_t::number_float:
      return check(object.kind() == Kind::kFloat && object.as_float() == expected.get<double>(), where, expected);
    case json::value_t::string:
      return check(object.kind() == Kind::kString && object.as_string() == expected.get<std::string>(), where,
                   expected);
    case json::value_t::array:
      return compare_items(object.items(), expected, where);
    default:
      return compare_tagged(object, expected, where);
  }
}

void Comparison::compare_tagged(const Object& object, const json& expected, const std::string& where) {
  const std::string tag = expected.begin().key();
  const auto has = [&](const char* name) { return expected.contains(name); };
  if (has("dict")) return compare_entries(object, expected["dict"], where);
  if (has("namespace")) {
    check(object.is_instance_of("argparse", "Namespace"), where, expected);
    return compare_entries(*object.instance().state, expected["namespace"]["dict"], where);
  }
  if (has("tuple") && object.is_instance_of("torch", "Size"))
    return compare_items(object.instance().arguments->items()[0]->items(), expected["tuple"], where);
  if (has("list") || has("tuple")) {
    check(object.kind() == (has("list") ? Kind::kList : Kind::kTuple), where, expected);
    return compare_items(object.items(), expected[tag], where);
  }
  if (has("set")) return compare_set(object, expected["set"], where);
  if (has("tuple_of_ints")) return compare_ints(object, expected["tuple_of_ints"], expected["sum"], where);
  if (has("list_of_ints")) return compare_ints(object, expected["list_of_ints"], expected["sum"], where);
  if (has("tensor")) return compare_tensor(object, expected, where);
  if (has("ndarray")) return compare_array(object, expected, where);
  if (has("numpy_scalar"))
    return check(object.is_instance() && object.instance().callable->global_name() == "scalar", where, expected);
  if (has("repr")) return compare_named(object, expected["repr"], where);
  if (has("enum")) {
    const Object& type = *object.instance().callable;
    check(type.global_module() + "." + type.global_name() == expected["enum"], where, expected);
    return compare(*object.instance().arguments->items()[0], expected["value"], where);
  }
  if (has("float")) return check(std::isinf(object.as_float()), where, expected);
  if (has("int")) {
    const std::string bits = pickle::decode_decimal(expected["int"].get<std::string>());
    return check(object.as_bytes() == bits, where, expected);
  }
  if (has("bytesio"))
    return check(hex(object.instance().state->items()[0]->as_bytes()) == expected["bytesio"], where, expected);
  if (has("bytes")) return check(hex(object.as_bytes()) == expected["bytes"], where, expected);
  differ(where, "unknown tag " + tag);
}

void Comparison::compare_items(std::span<Object* const> items, const json& expected, const std::string& where) {
  if (items.size() != expected.size()) return differ(where, fmt::format("{} items", items.size()));
  for (size_t i = 0; i < items.size(); ++i) compare(*items[i], expected[i], fmt::format("{}[{}]", where, i));
}

void Comparison::compare_entries(const Object& object, const json& expected, const std::string& where) {
  const bool is_ordered = object.is_instance_of("collections", "OrderedDict");
  const auto entries = is_ordered ? std::span<const pickle::Entry>(object.instance().entries) : object.entries();
  if (entries.size() != expected.size()) return differ(where, fmt::format("{} entries", entries.size()));
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string name = where + "/" + expected[i][0].dump();
    compare(*entries[i].key, expected[i][0], name + " (key)");
    compare(*entries[i].value, expected[i][1], name);
  }
}

void Comparison::compare_set(const Object& object, const json& expected, const std::string& where) {
  const bool is_call = object.is_instance();  // protocols below 4 have no opcode for sets
  const auto items = is_call ? object.instance().arguments->items()[0]->items() : object.items();
  std::vector<int64_t> values;
  for (const Object* item : items) values.push_back(item->as_int());
  std::sort(values.begin(), values.end());
  check(json(values) == expected, where, expected);
}

void Comparison::compare_ints(const Object& object, int64_t count, int64_t sum, const std::string& where) {
  int64_t actual = 0;
  for (const Object* item : object.items()) actual += item->as_int();
  if (static_cast<int64_t>(object.items().size()) != count || actual != sum) differ(where, "other numbers");
}

void Comparison::compare_tensor(const Object& object, const json& expected, const std::string& where) {
  const auto tensor = torch_tensor(object);
  if (!tensor) return differ(where, "no tensor");
  check("torch." + std::string(name_of(tensor->type)) == expected["tensor"], where, expected);
  check(std::vector<int64_t>(tensor->shape.begin(), tensor->shape.end()) == expected["shape"], where, expected);
  const auto bytes = file_->read(*tensor);
  if (expected.contains("sha256")) return check(sha256_hex(bytes) == expected["sha256"], where, expected);
  compare_elements({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, tensor->type, expected["values"],
                   where);
}

void Comparison::compare_elements(std::string_view bytes, ElementType type, const json& expected,
                                  const std::string& where) {
  std::vector<double> values;
  flatten(expected, values);
  const auto width = static_cast<size_t>(size_of(type));
  if (bytes.size() != values.size() * width) return differ(where, fmt::format("{} bytes", bytes.size()));
  for (size_t i = 0; i < values.size(); ++i)
    if (element(bytes.data() + i * width, type) != values[i]) return differ(where, fmt::format("element {}", i));
}

/// numpy stores an array as a call without values whose state is (version, shape, dtype, order, bytes).
void Comparison::compare_array(const Object& object, const json& expected, const std::string& where) {
  const auto state = object.instance().state->items();
  const std::string code = state[2]->instance().arguments->items()[0]->as_string();
  const std::map<std::string, ElementType> types = {
      {"u4", ElementType::kUInt32}, {"f4", ElementType::kFloat32}, {"f8", ElementType::kFloat64}};
  const ElementType type = types.at(code);
  check(name_of(type) == expected["ndarray"].get<std::string>(), where, expected);
  const Shape shape = torch_size(*state[1]);
  check(std::vector<int64_t>(shape.begin(), shape.end()) == expected["shape"], where, expected);
  const std::string bytes = state[4]->as_bytes();
  if (expected.contains("sha256"))
    return check(sha256_hex(std::as_bytes(std::span(bytes))) == expected["sha256"], where, expected);
  compare_elements(bytes, type, expected["values"], where);
}

void Comparison::compare_named(const Object& object, const std::string& repr, const std::string& where) {
  std::string text;
  if (object.kind() == Kind::kGlobal) text = object.global_module() + "." + object.global_name();
  if (object.is_instance_of("torch", "Size")) text = fmt::format("torch.Size({})", torch_size(object));
  if (object.is_instance_of("torch", "device"))
    text = fmt::format("device(type='{}')", object.instance().arguments->items()[0]->as_string());
  if (text != repr) differ(where, fmt::format("{} instead of {}", text, repr));
}

}  // namespace

std::string read_golden(const std::string& name) {
  return read_file(PosixFileSystem(), testing::golden_path("checkpoint/" + name));
}
json read_golden_json(const std::string& name) { return json::parse(read_golden(name)); }
std::string saved_folder(const std::string& name) {
  return fmt::format("{}/saved/iter_{:07}/", name,
                     std::stoll(read_golden(name + "/saved/latest_checkpointed_iteration.txt")));
}

::testing::AssertionResult same_bytes(std::string_view actual, std::string_view expected) {
  const auto difference = std::mismatch(actual.begin(), actual.end(), expected.begin(), expected.end());
  if (actual == expected) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << fmt::format("{} and {} bytes differ from byte {} on", actual.size(),
                                                      expected.size(), difference.first - actual.begin());
}

::testing::AssertionResult matches(const Object& object, const json& expected, const TorchFile* file) {
  Comparison comparison(file);
  comparison.compare(object, expected, "");
  return comparison.result();
}

}  // namespace megatron
