#include "megatron/tokenizers/chat_template/functions.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/tokenizers/chat_template/builtins.h"

namespace megatron::chat_template {
namespace {
Value make_namespace(const Arguments& arguments) {
  Dict entries = arguments.named;
  entries.emplace_back(kNamespaceMark, true);
  return Value::growing(std::move(entries));
}

/// Python's dict(): the entries of a dict, or pairs, and then the named arguments.
Value make_dict(const Arguments& arguments) {
  constexpr size_t kMost = 1000;  // each key is compared with all of them
  Dict entries;
  const auto set = [&](const std::string& key, const Value& value) {
    require<NotSupported>(entries.size() < kMost, "dict: more than {} entries are not supported", kMost);
    const auto place = std::ranges::find(entries, key, &std::pair<std::string, Value>::first);
    if (place != entries.end())
      place->second = value;
    else
      entries.emplace_back(key, value);
  };
  require<DataError>(arguments.positional.size() <= 1, "dict: {} arguments; 0 or 1 are supported",
                     arguments.positional.size());
  for (const Value& given : arguments.positional) {
    if (given.is_dict()) {
      for (const auto& [key, value] : given.dict()) set(key, value);
      continue;
    }
    for (const Value& pair : elements_of(given)) {
      const List parts = elements_of(pair);
      require<DataError>(parts.size() == 2, "dict: {} values where a key and a value are needed", parts.size());
      set(parts[0].string(), parts[1]);
    }
  }
  for (const auto& [key, value] : arguments.named) set(key, value);
  return entries;
}

Value raise_exception(const Arguments& arguments) {
  throw DataError("the chat template refuses the conversation: " + text_of(argument(arguments, 0, "message", "")));
}

Value range(const Arguments& arguments) {
  constexpr uint64_t kMost = 100'000;  // Jinja's MAX_RANGE
  const auto number = [&](size_t i) {
    require<DataError>(arguments.positional[i].is_integer(), "range: {} is no integer", arguments.positional[i].kind());
    return arguments.positional[i].integer();
  };
  const size_t count = arguments.positional.size();
  require<DataError>(count >= 1 && count <= 3, "range: {} arguments; 1 to 3 are supported", count);
  const int64_t begin = count == 1 ? 0 : number(0), end = number(count == 1 ? 0 : 1), step = count == 3 ? number(2) : 1;
  require<DataError>(step != 0, "range: a step of 0");
  const bool is_empty = step > 0 ? end <= begin : end >= begin;
  if (is_empty) return List();
  const auto place = [](int64_t value) { return static_cast<uint64_t>(value); };
  const uint64_t distance = step > 0 ? place(end) - place(begin) : place(begin) - place(end);
  const uint64_t stride = step > 0 ? place(step) : 0 - place(step);
  const uint64_t size = (distance - 1) / stride + 1;
  require<DataError>(size <= kMost, "range: more than {} numbers", kMost);
  List list;
  for (uint64_t i = 0; i < size; ++i) list.emplace_back(static_cast<int64_t>(place(begin) + i * place(step)));
  return list;
}
}  // namespace

void set_functions(Scope& scope) {
  scope.set("namespace", Callable(make_namespace));
  scope.set("dict", Callable(make_dict));
  scope.set("raise_exception", Callable(raise_exception));
  scope.set("range", Callable(range));
}

Value strftime_now(const Value& date) {
  return Callable([date](const Arguments&) { return date; });
}

}  // namespace megatron::chat_template
