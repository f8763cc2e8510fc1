#include "megatron/training/config/layer_pattern.h"

#include <algorithm>
#include <charconv>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr size_t kMostEntries = 100'000;
constexpr int64_t kLargestNumber = 1'000'000'000;

// An integer, or a list of integers.
struct Operand {
  bool is_list = false;
  int64_t number = 0;
  std::vector<int64_t> list;
};

// sum := product ('+' product)*;  product := atom ('*' atom)*;  atom := number | '[' [sum (',' sum)*] ']' | '(' sum ')'
// Lists are joined by '+' and repeated by '*'; numbers are added and multiplied.
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
  void enter() { require<ConfigError>(++depth_ <= 100, "brackets are nested too deeply"); }
  static int64_t bounded(int64_t number) {
    require<ConfigError>(number <= kLargestNumber, "{} is too large; numbers reach up to {}", number, kLargestNumber);
    return number;
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
      if (left.is_list != right.is_list) fail();
      left.number = bounded(left.number + right.number);
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
      if (right.is_list) fail();
      left.number = bounded(left.number * right.number);
      if (left.list.empty()) continue;
      const auto times = static_cast<size_t>(right.number);
      require<ConfigError>(times <= kMostEntries / left.list.size(), "the list is too long");
      const std::vector<int64_t> once = std::move(left.list);
      left.list.clear();
      for (size_t i = 0; i < times; ++i) left.list.insert(left.list.end(), once.begin(), once.end());
    }
    return left;
  }
  Operand atom() {
    if (take('(')) {
      enter();
      Operand inside = sum();
      if (!take(')')) fail();
      --depth_;
      return inside;
    }
    if (take('[')) {
      enter();
      Operand list = list_behind_bracket();
      --depth_;
      return list;
    }
    return number();
  }
  Operand list_behind_bracket() {
    Operand value{.is_list = true};
    if (take(']')) return value;
    do {
      const Operand entry = sum();
      if (entry.is_list) fail();
      value.list.push_back(entry.number);
      require<ConfigError>(value.list.size() <= kMostEntries, "the list is too long");
    } while (take(','));
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
    bounded(value.number);
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
