#include <algorithm>
#include <array>

#include "megatron/base/error.h"
#include "megatron/tokenizers/chat_template/builtins.h"

namespace megatron::chat_template {
namespace {
struct Test {
  std::string_view name;
  bool (*call)(const Arguments&);
};

const Value& tested_value(const Arguments& a) { return a.positional.at(0); }
const Value& other_of(const Arguments& a) {
  require<DataError>(a.positional.size() > 1, "a test of a chat template lacks the value to compare with");
  return a.positional[1];
}
bool is_sequence(const Arguments& a) {
  return tested_value(a).is_list() || tested_value(a).is_dict() || tested_value(a).is_string();
}
bool is_equal(const Arguments& a) { return equal(tested_value(a), other_of(a)); }
bool is_other(const Arguments& a) { return !equal(tested_value(a), other_of(a)); }
int64_t remainder(const Arguments& a, int64_t divisor) {
  require<DataError>(tested_value(a).is_integer() && divisor != 0, "{} has no remainder by {}", tested_value(a).kind(),
                     divisor);
  return divisor == -1 ? 0 : tested_value(a).integer() % divisor;
}

constexpr std::array<Test, 27> kTests = {{
    {"defined", [](const Arguments& a) { return !tested_value(a).is_undefined(); }},
    {"undefined", [](const Arguments& a) { return tested_value(a).is_undefined(); }},
    {"none", [](const Arguments& a) { return tested_value(a).is_none(); }},
    {"string", [](const Arguments& a) { return tested_value(a).is_string(); }},
    {"number", [](const Arguments& a) { return tested_value(a).is_number(); }},
    {"integer", [](const Arguments& a) { return tested_value(a).is<int64_t>(); }},
    {"float", [](const Arguments& a) { return tested_value(a).is<double>(); }},
    {"boolean", [](const Arguments& a) { return tested_value(a).is<bool>(); }},
    {"true", [](const Arguments& a) { return tested_value(a).is<bool>() && tested_value(a).is_true(); }},
    {"false", [](const Arguments& a) { return tested_value(a).is<bool>() && !tested_value(a).is_true(); }},
    {"mapping", [](const Arguments& a) { return tested_value(a).is_dict(); }},
    {"iterable", [](const Arguments& a) { return is_sequence(a) || tested_value(a).is_undefined(); }},
    {"sequence", [](const Arguments& a) { return is_sequence(a) || tested_value(a).is_undefined(); }},
    {"equalto", is_equal},
    {"eq", is_equal},
    {"==", is_equal},
    {"ne", is_other},
    {"!=", is_other},
    {"lt", [](const Arguments& a) { return less(tested_value(a), other_of(a)); }},
    {"gt", [](const Arguments& a) { return less(other_of(a), tested_value(a)); }},
    {"le", [](const Arguments& a) { return !less(other_of(a), tested_value(a)); }},
    {"ge", [](const Arguments& a) { return !less(tested_value(a), other_of(a)); }},
    {"in",
     [](const Arguments& a) {
       const List elements = elements_of(other_of(a));
       return std::ranges::any_of(elements, [&](const Value& item) { return equal(item, tested_value(a)); });
     }},
    {"odd", [](const Arguments& a) { return remainder(a, 2) != 0; }},
    {"even", [](const Arguments& a) { return remainder(a, 2) == 0; }},
    {"divisibleby", [](const Arguments& a) { return remainder(a, other_of(a).integer()) == 0; }},
    {"callable", [](const Arguments& a) { return tested_value(a).is<Value::CallablePtr>(); }},
}};
}  // namespace

bool is_test(std::string_view name) { return std::ranges::find(kTests, name, &Test::name) != kTests.end(); }

bool call_test(std::string_view name, const Arguments& arguments) {
  return std::ranges::find(kTests, name, &Test::name)->call(arguments);
}

}  // namespace megatron::chat_template
