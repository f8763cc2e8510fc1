#include "megatron/tokenizers/chat_template/interpreter.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/tokenizers/chat_template/builtins.h"
#include "megatron/tokenizers/chat_template/functions.h"
#include "megatron/tokenizers/chat_template/limits.h"
#include "megatron/tokenizers/chat_template/scope.h"

namespace megatron::chat_template {
namespace {

enum class Flow { kNormal, kBreak, kContinue };
constexpr int kMaxMacros = 200;  // that call each other

class Interpreter {
 public:
  explicit Interpreter(int64_t weight) : limits_(weight) {}

  Flow run(const Body& body, Scope& scope, std::string& out) {
    for (const Statement& statement : body) {
      const Flow flow = run(statement, scope, out);
      if (flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
  }

 private:
  using Kind = Expression::Kind;

  Flow run(const Statement& s, Scope& scope, std::string& out) {
    const Limits::Level level = limits_.descend();
    limits_.spend(1);
    switch (s.kind) {
      case Statement::Kind::kText:
        out += s.text;
        break;
      case Statement::Kind::kPrint:
        out += text_of(evaluate(*s.expression, scope));
        require_text_size(out.size());
        break;
      case Statement::Kind::kIf:
        return run(evaluate(*s.expression, scope).is_true() ? s.body : s.otherwise, scope, out);
      case Statement::Kind::kFor:
        return run_loop(s, scope, out);
      case Statement::Kind::kSet:
        assign(s, evaluate(*s.expression, scope), scope);
        break;
      case Statement::Kind::kSetBlock: {
        std::string text;
        Scope inner(&scope);
        run(s.body, inner, text);
        scope.set(s.targets[0], text);
        break;
      }
      case Statement::Kind::kMacro:
        scope.set(s.text, macro(s, scope));
        break;
      case Statement::Kind::kGroup:
        return run(s.body, scope, out);
      case Statement::Kind::kBreak:
        return Flow::kBreak;
      case Statement::Kind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNormal;
  }

  void unpack(const std::vector<std::string>& targets, const Value& value, Scope& scope) {
    if (targets.size() == 1) return scope.set(targets[0], value);
    const List parts = elements_of(value);
    require<DataError>(parts.size() == targets.size(), "{} values for {} names", parts.size(), targets.size());
    for (size_t i = 0; i < targets.size(); ++i) scope.set(targets[i], parts[i]);
  }

  void assign(const Statement& s, const Value& value, Scope& scope) {
    if (s.attribute.empty()) return unpack(s.targets, value, scope);
    const Value* object = scope.find(s.targets[0]);
    const Value* marker = object && object->is_dict() ? object->find(kNamespaceMark) : nullptr;
    require<DataError>(marker != nullptr, "{} is no namespace, so that {}.{} cannot be set", s.targets[0], s.targets[0],
                       s.attribute);
    require<DataError>(
        value.depth() < Value::kMaxDepth,
        "line {} of the chat template: a namespace cannot hold a namespace, nor lists nested more than {} "
        "deep",
        s.line, Value::kMaxDepth - 1);
    Dict& entries = object->mutable_dict();
    const auto place = std::ranges::find(entries, s.attribute, &std::pair<std::string, Value>::first);
    if (place != entries.end())
      place->second = value;
    else
      entries.emplace_back(s.attribute, value);
  }

  Flow run_loop(const Statement& s, Scope& scope, std::string& out) {
    List items = elements_of(evaluate(*s.expression, scope));
    if (s.condition)
      std::erase_if(items, [&](const Value& item) {
        Scope inner(&scope);
        unpack(s.targets, item, inner);
        return !evaluate(*s.condition, inner).is_true();
      });
    if (items.empty()) return run(s.otherwise, scope, out);
    const auto size = static_cast<int64_t>(items.size());
    for (int64_t i = 0; i < size; ++i) {
      limits_.spend(kLoopWork);
      Scope inner(&scope);
      Dict loop = {{"index", i + 1},  {"index0", i},           {"revindex", size - i}, {"revindex0", size - i - 1},
                   {"first", i == 0}, {"last", i + 1 == size}, {"length", size}};
      if (i > 0) loop.emplace_back("previtem", items[static_cast<size_t>(i - 1)]);
      if (i + 1 < size) loop.emplace_back("nextitem", items[static_cast<size_t>(i + 1)]);
      inner.set("loop", loop);
      unpack(s.targets, items[static_cast<size_t>(i)], inner);
      if (run(s.body, inner, out) == Flow::kBreak) break;
    }
    return Flow::kNormal;
  }

  Value macro(const Statement& s, const Scope& scope) {
    const Scope* root = scope.root();
    return Callable([this, &s, root](const Arguments& arguments) -> Value {
      require<DataError>(++num_macros_ <= kMaxMacros,
                         "macros of the chat template call each other more than {} times deep", kMaxMacros);
      Scope inner(root);
      require<DataError>(arguments.positional.size() <= s.targets.size(), "the macro {} takes {} arguments", s.text,
                         s.targets.size());
      const size_t first_default = s.targets.size() - s.defaults.size();
      for (size_t i = 0; i < s.targets.size(); ++i) {
        const Value otherwise = i < first_default ? Value() : evaluate(*s.defaults[i - first_default], inner);
        inner.set(s.targets[i], argument(arguments, i, s.targets[i], otherwise));
      }
      std::string text;
      run(s.body, inner, text);
      --num_macros_;
      return text;
    });
  }

  Value evaluate(const Expression& e, Scope& scope) {
    const Limits::Level level = limits_.descend();
    Value value = value_of(e, scope);
    limits_.spend(1 + value.weight() / kWeightOfStep);
    return value;
  }

  Value value_of(const Expression& e, Scope& scope) {
    switch (e.kind) {
      case Kind::kLiteral:
        return e.literal;
      case Kind::kName:
        return name_value(e, scope);
      case Kind::kList: {
        List list;
        for (const ExpressionPtr& item : e.args) list.push_back(evaluate(*item, scope));
        return list;
      }
      case Kind::kDict:
        return dict(e, scope);
      case Kind::kAttribute:
        return attribute(e, scope);
      case Kind::kItem:
        return item(evaluate(*e.args[0], scope), evaluate(*e.args[1], scope));
      case Kind::kSlice:
        return slice(e, scope);
      case Kind::kCall:
        return call(e, scope);
      case Kind::kFilter:
        return call_filter(e.name, arguments_of(e, 0, scope));
      case Kind::kTest:
        return call_test(e.name, arguments_of(e, 0, scope));
      case Kind::kUnary:
        return unary(e, evaluate(*e.args[0], scope));
      case Kind::kBinary:
        return binary(e, evaluate(*e.args[0], scope), evaluate(*e.args[1], scope));
      case Kind::kCompare:
        return compare(e, scope);
      case Kind::kAnd: {
        const Value left = evaluate(*e.args[0], scope);
        return left.is_true() ? evaluate(*e.args[1], scope) : left;
      }
      case Kind::kOr: {
        const Value left = evaluate(*e.args[0], scope);
        return left.is_true() ? left : evaluate(*e.args[1], scope);
      }
      case Kind::kConditional:
        break;
    }
    if (evaluate(*e.args[0], scope).is_true()) return evaluate(*e.args[1], scope);
    return e.args[2] ? evaluate(*e.args[2], scope) : Value();
  }

  Value name_value(const Expression& e, const Scope& scope) const {
    const Value* value = scope.find(e.name);
    return value ? *value : Value();
  }

  Value dict(const Expression& e, Scope& scope) {
    Dict result;
    for (size_t i = 0; i < e.args.size(); i += 2) {
      const Value key = evaluate(*e.args[i], scope);
      require<NotSupported>(key.is_string(), "line {} of the chat template: {} as a key of a dict", e.line, key.kind());
      result.emplace_back(key.string(), evaluate(*e.args[i + 1], scope));
    }
    return result;
  }

  /// A method comes before an entry of the same name, as in Jinja.
  Value attribute(const Expression& e, Scope& scope) {
    const Value object = evaluate(*e.args[0], scope);
    require<DataError>(!object.is_undefined(), "line {} of the chat template: an undefined value has no '{}'", e.line,
                       e.name);
    if (has_method(object, e.name))
      return Callable([object, name = e.name](const Arguments& a) { return call_method(object, name, a); });
    return attribute_of(object, e.name);
  }

  Value item(const Value& object, const Value& index) {
    if (index.is_string()) return attribute_of(object, index.string());
    require<DataError>(!object.is_undefined(), "an undefined value has no items");
    if (!index.is_integer() || object.is_dict() || object.is_number() || object.is_none()) return {};
    const List items = elements_of(object);
    const int64_t size = std::ssize(items), place = index.integer() < 0 ? index.integer() + size : index.integer();
    return place >= 0 && place < size ? items[static_cast<size_t>(place)] : Value();
  }

  /// Python's slices.
  Value slice(const Expression& e, Scope& scope) {
    const Value object = evaluate(*e.args[0], scope);
    const auto bound = [&](size_t arg) -> std::optional<int64_t> {
      if (!e.args[arg]) return std::nullopt;
      const Value value = evaluate(*e.args[arg], scope);
      if (value.is_none()) return std::nullopt;
      require<DataError>(value.is_integer(), "line {} of the chat template: a slice by {}", e.line, value.kind());
      return value.integer();
    };
    const List items = elements_of(object);
    const int64_t size = std::ssize(items), step = std::clamp(bound(3).value_or(1), -size - 1, size + 1);
    require<DataError>(step != 0, "line {} of the chat template: a slice with a step of 0", e.line);
    const auto place = [&](std::optional<int64_t> at, int64_t otherwise) {
      if (!at) return otherwise;
      return std::clamp(*at < 0 ? *at + size : *at, step > 0 ? int64_t{0} : int64_t{-1}, step > 0 ? size : size - 1);
    };
    const int64_t begin = place(bound(1), step > 0 ? 0 : size - 1), end = place(bound(2), step > 0 ? size : -1);
    List result;
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) result.push_back(items[static_cast<size_t>(i)]);
    if (!object.is_string()) return result;
    std::string text;
    for (const Value& character : result) text += character.string();
    return text;
  }

  Arguments arguments_of(const Expression& e, size_t first, Scope& scope) {
    Arguments arguments;
    for (size_t i = first; i < e.args.size(); ++i) arguments.positional.push_back(evaluate(*e.args[i], scope));
    for (const auto& [name, value] : e.named) arguments.named.emplace_back(name, evaluate(*value, scope));
    return arguments;
  }

  Value call(const Expression& e, Scope& scope) {
    const Value function = evaluate(*e.args[0], scope);
    require<DataError>(
        e.args[0]->name != "strftime_now" || !function.is_undefined(),
        "line {} of the chat template: strftime_now() would give each day another text. Name the date in "
        "each conversation, as in {{\"strftime_now\": \"26 Jul 2024\", \"messages\": ...}}, or write it "
        "into the template",
        e.line);
    require<DataError>(function.is<Value::CallablePtr>(),
                       "line {} of the chat template: '{}' is no function that is supported", e.line, e.args[0]->name);
    return function.callable()(arguments_of(e, 1, scope));
  }

  Value unary(const Expression& e, const Value& value) {
    if (e.name == "not") return !value.is_true();
    require<DataError>(value.is_number(), "line {} of the chat template: {} has no sign", e.line, value.kind());
    if (e.name == "+") return value;
    return value.is_integer() ? whole(e, 0, value.integer()) : Value(-value.number());
  }

  Value binary(const Expression& e, const Value& a, const Value& b) {
    if (e.name == "~") return text_of(a) + text_of(b);
    if (e.name == "+" && a.is_string() && b.is_string()) return a.string() + b.string();
    if (e.name == "+" && a.is_list() && b.is_list()) {
      List list = a.list();
      list.insert(list.end(), b.list().begin(), b.list().end());
      return list;
    }
    if (e.name == "*" && a.is_string() && b.is_integer()) return repeated(a.string(), b.integer());
    require<DataError>(a.is_number() && b.is_number(), "line {} of the chat template: {} {} {} is not defined", e.line,
                       a.kind(), e.name, b.kind());
    const bool divides = e.name == "/" || e.name == "//" || e.name == "%";
    require<DataError>(!divides || b.number() != 0, "line {} of the chat template: a division by zero", e.line);
    if (a.is_integer() && b.is_integer() && e.name != "/" && e.name != "**") return whole(e, a.integer(), b.integer());
    if (e.name == "+") return a.number() + b.number();
    if (e.name == "-") return a.number() - b.number();
    if (e.name == "*") return a.number() * b.number();
    if (e.name == "/") return a.number() / b.number();
    throw NotSupported(fmt::format("line {} of the chat template: {} of these numbers", e.line, e.name));
  }

  static Value repeated(const std::string& text, int64_t count) {
    std::string result;
    for (int64_t i = 0; i < count && !text.empty(); ++i) {
      result += text;
      require_text_size(result.size());
    }
    return result;
  }

  static Value whole(const Expression& e, int64_t a, int64_t b) {
    int64_t result = 0;
    const bool overflows = e.name == "+"   ? __builtin_add_overflow(a, b, &result)
                           : e.name == "-" ? __builtin_sub_overflow(a, b, &result)
                           : e.name == "*" ? __builtin_mul_overflow(a, b, &result)
                                           : b == -1 && __builtin_sub_overflow(0, a, &result);
    require<DataError>(!overflows, "line {} of the chat template: a number has more than 63 bits", e.line);
    if (e.name == "//" && b != -1) result = a / b - (a % b != 0 && (a < 0) != (b < 0));
    if (e.name == "%") result = b == -1 ? 0 : (a % b + b) % b;
    return result;
  }

  Value compare(const Expression& e, Scope& scope) {
    Value left = evaluate(*e.args[0], scope);
    for (size_t i = 0; i < e.operators.size(); ++i) {
      const Value right = evaluate(*e.args[i + 1], scope);
      if (!holds(e.operators[i], left, right)) return false;
      left = right;
    }
    return true;
  }

  static bool holds(const std::string& name, const Value& a, const Value& b) {
    if (name == "==") return equal(a, b);
    if (name == "!=") return !equal(a, b);
    if (name == "<") return less(a, b);
    if (name == ">") return less(b, a);
    if (name == "<=") return !less(b, a);
    if (name == ">=") return !less(a, b);
    return is_in(a, b) == (name == "in");
  }

  static bool is_in(const Value& a, const Value& b) {
    if (b.is_string()) {
      require<DataError>(a.is_string(), "{} cannot be in a string", a.kind());
      return b.string().find(a.string()) != std::string::npos;
    }
    const List elements = elements_of(b);
    return std::ranges::any_of(elements, [&](const Value& element) { return equal(element, a); });
  }

  static constexpr int64_t kLoopWork = 8;       // of the variables of an iteration
  static constexpr int64_t kWeightOfStep = 16;  // that a filter or a comparison handles in the time of a step
  Limits limits_;
  int num_macros_ = 0;
};
}  // namespace

std::string render(const Body& body, const Dict& variables) {
  Scope scope(nullptr);
  set_functions(scope);
  int64_t weight = 0;
  for (const auto& [name, value] : variables) {
    weight += value.weight();
    scope.set(name, name == "strftime_now" ? strftime_now(value) : value);
  }
  std::string text;
  Interpreter(weight).run(body, scope, text);
  return text;
}

}  // namespace megatron::chat_template
