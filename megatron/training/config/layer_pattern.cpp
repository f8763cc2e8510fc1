#include "megatron/training/config/layer_pattern.h"

#include <algorithm>
#include <charconv>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr size_t kMostEntries = 100'000;

// An integer, or a list of integers.
struct Operand {
  bool is_list = false;
  int64_t number = 0;
  std::vector<int64_t> list;
};

// sum := product ('+' product)*;  product := atom ('*' atom)*;  atom := number | '[' [sum (',' sum)*] ']' | '(' sum ')'
class ExpressionReader {
 public:
  explicit ExpressionReader(std::string_view text) : text_(text) {}

  Operand read_all() {
    Operand value = sum();
    skip_spaces();
    if (next_ != text_.size()) fail();
    return value;
  }

 private:
  [[noreturn]] static void fail() {
    throw ConfigError("must be a whole number N (every N-th layer) or a list such as [0,1,1] or ([0]*1+[1]*3)");
  }
  void skip_spaces() {
    while (next_ < text_.size() && text_[next_] == ' ') ++next_;
  }
  bool take(char wanted) {
    skip_spaces();
    if (next_ == text_.size() || text_[next_] != wanted) return false;
    ++next_;
    return true;
  }

  Operand sum() {
    Operand left = product();
    while (take('+')) {
      const Operand right = product();
      if (!left.is_list || !right.is_list) fail();
      require<ConfigError>(left.list.size() + right.list.size() <= kMostEntries, "the list is too long");
      left.list.insert(left.list.end(), right.list.begin(), right.list.end());
    }
    return left;
  }
  Operand product() {
    Operand left = atom();
    while (take('*')) {
      Operand right = atom();
      if (right.is_list) std::swap(left, right);
      if (!left.is_list || right.is_list) fail();
      const auto times = static_cast<size_t>(right.number);
      require<ConfigError>(left.list.empty() || times <= kMostEntries / left.list.size(), "the list is too long");
      const std::vector<int64_t> once = std::move(left.list);
      left.list.clear();
      for (size_t i = 0; i < times; ++i) left.list.insert(left.list.end(), once.begin(), once.end());
    }
    return left;
  }
  Operand atom() {
    if (take('(')) {
      require<ConfigError>(++depth_ <= 100, "brackets are nested too deeply");
      Operand inside = sum();
      if (!take(')')) fail();
      --depth_;
      return inside;
    }
    if (take('[')) return list_behind_bracket();
    return number();
  }
  Operand list_behind_bracket() {
    Operand value{.is_list = true};
    if (take(']')) return value;
    do value.list.push_back(number().number);
    while (take(','));
    if (!take(']')) fail();
    return value;
  }
  Operand number() {
    skip_spaces();
    Operand value;
    if (next_ == text_.size() || text_[next_] < '0' || text_[next_] > '9') fail();
    const auto [end, error] = std::from_chars(text_.data() + next_, text_.data() + text_.size(), value.number);
    if (error != std::errc{}) fail();
    next_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  std::string_view text_;
  size_t next_ = 0;
  int depth_ = 0;
};

}  // namespace

LayerPattern parse_layer_pattern(std::string_view text) {
  Operand value = ExpressionReader(text).read_all();
  if (!value.is_list) {
    require<ConfigError>(value.number >= 1, "the interval must be at least 1");
    return {.interval = value.number, .per_layer = {}};
  }
  require<ConfigError>(!value.list.empty(), "the list is empty");
  const bool binary = std::all_of(value.list.begin(), value.list.end(), [](int64_t entry) { return entry <= 1; });
  require<ConfigError>(binary, "every entry of the list must be 0 or 1");
  return {.interval = 0, .per_layer = std::move(value.list)};
}

}  // namespace megatron
