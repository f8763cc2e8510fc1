#include "megatron/tokenizers/chat_template/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "megatron/base/error.h"

namespace megatron::chat_template {
namespace {
constexpr std::array<std::string_view, 6> kLongOperators = {"**", "//", "==", "!=", "<=", ">="};
constexpr std::string_view kOperators = "+-*/%~|.,:()[]{}<>=";
constexpr std::string_view kSpace = " \t\n\r\v\f";

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string with_newlines(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      i += i + 1 < source.size() && source[i + 1] == '\n';
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_newlines(source)) {}

  std::vector<Token> run() {
    while (offset_ < source_.size()) read_text();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(offset_); }
  size_t line_of(size_t offset) const {
    return 1 + static_cast<size_t>(std::count(source_.begin(), source_.begin() + static_cast<ptrdiff_t>(offset), '\n'));
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_of(offset_)}); }
  [[noreturn]] void fail(std::string_view what) const {
    throw DataError(fmt::format("line {} of the chat template: {}", line_of(offset_), what));
  }

  /// Text up to the next tag, and that tag.
  void read_text() {
    size_t tag = offset_;
    while (tag < source_.size() && !(source_[tag] == '{' && tag + 1 < source_.size() &&
                                     (source_[tag + 1] == '{' || source_[tag + 1] == '%' || source_[tag + 1] == '#')))
      ++tag;
    std::string text = source_.substr(offset_, tag - offset_);
    if (tag == source_.size()) {
      if (!text.empty()) add(TokenKind::kText, text);
      offset_ = tag;
      return;
    }
    const char kind = source_[tag + 1], sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign == '-')
      text.erase(text.find_last_not_of(kSpace) + 1);
    else if (kind != '{' && sign != '+')
      strip_line_start(text);
    if (!text.empty()) add(TokenKind::kText, text);
    offset_ = tag + 2 + (sign == '-' || sign == '+');
    if (kind == '#') return skip_comment();
    add(kind == '{' ? TokenKind::kExpressionBegin : TokenKind::kBlockBegin, "");
    read_words(kind == '{' ? "}}" : "%}", kind == '{' ? TokenKind::kExpressionEnd : TokenKind::kBlockEnd);
  }

  /// lstrip_blocks: spaces between the start of a line and a tag go.
  void strip_line_start(std::string& text) const {
    const size_t newline = text.rfind('\n');
    if (newline == std::string::npos && !starts_line_) return;
    const size_t start = newline == std::string::npos ? 0 : newline + 1;
    if (text.find_first_not_of(kSpace, start) == std::string::npos) text.erase(start);
  }

  /// Moves behind a tag's end. trim_blocks: a newline behind a block goes too.
  void end_tag(bool strips, bool trims) {
    const size_t begin = offset_;
    offset_ += 2;
    if (strips)
      while (offset_ < source_.size() && kSpace.find(source_[offset_]) != std::string_view::npos) ++offset_;
    else if (trims && offset_ < source_.size() && source_[offset_] == '\n')
      ++offset_;
    starts_line_ = offset_ > begin && source_[offset_ - 1] == '\n';
  }

  void skip_comment() {
    const size_t end = source_.find("#}", offset_);
    if (end == std::string::npos) fail("a comment does not end");
    const char sign = source_[end - 1];
    offset_ = end;
    end_tag(sign == '-', sign != '+');
  }

  void read_words(std::string_view end, TokenKind end_kind) {
    int depth = 0;  // of brackets: "}}" may close two dicts
    while (true) {
      while (offset_ < source_.size() && kSpace.find(source_[offset_]) != std::string_view::npos) ++offset_;
      if (offset_ == source_.size()) fail("a tag does not end");
      const char c = source_[offset_];
      const bool has_sign = c == '-' || (c == '+' && end == "%}");
      if (depth == 0 && (rest().starts_with(end) || (has_sign && rest().substr(1).starts_with(end)))) {
        add(end_kind, "");
        offset_ += has_sign;
        return end_tag(c == '-', end == "%}" && c != '+');
      }
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') --depth;
      read_word();
    }
  }

  void read_word() {
    const char c = source_[offset_];
    if (c == '\'' || c == '"') return read_string(c);
    if (std::isdigit(static_cast<unsigned char>(c))) return read_number();
    if (is_name_start(c)) {
      size_t end = offset_;
      while (end < source_.size() && is_name(source_[end])) ++end;
      return take(TokenKind::kName, end - offset_);
    }
    for (const std::string_view name : kLongOperators)
      if (rest().starts_with(name)) return take(TokenKind::kOperator, name.size());
    if (kOperators.find(c) == std::string_view::npos)
      throw NotSupported(fmt::format("line {} of the chat template: the character '{}' in a tag", line_of(offset_), c));
    take(TokenKind::kOperator, 1);
  }

  void take(TokenKind kind, size_t size) {
    add(kind, source_.substr(offset_, size));
    offset_ += size;
  }

  void read_number() {
    size_t end = offset_;
    const auto skip_digits = [&] {
      while (end < source_.size() && std::isdigit(static_cast<unsigned char>(source_[end]))) ++end;
    };
    skip_digits();
    const bool is_float =
        end + 1 < source_.size() && source_[end] == '.' && std::isdigit(static_cast<unsigned char>(source_[end + 1]));
    if (is_float) {
      ++end;
      skip_digits();
    }
    take(is_float ? TokenKind::kFloat : TokenKind::kInteger, end - offset_);
  }

  void read_string(char quote) {
    std::string value;
    size_t i = offset_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] != '\\' || i + 1 == source_.size()) {
        value += source_[i];
        continue;
      }
      const char escape = source_[++i];
      constexpr std::string_view kNames = "nrtbfv0\\'\"", kValues("\n\r\t\b\f\v\0\\'\"", 10);
      const size_t known = kNames.find(escape);
      if (known == std::string_view::npos)
        throw NotSupported(
            fmt::format("line {} of the chat template: the escape \\{} in a string", line_of(i), escape));
      value += kValues[known];
    }
    if (i >= source_.size()) fail("a string does not end");
    add(TokenKind::kString, value);
    offset_ = i + 1;
  }

  std::string source_;
  size_t offset_ = 0;
  bool starts_line_ = true;  // what was read last ended with a newline
  std::vector<Token> tokens_;
};
}  // namespace

std::vector<Token> tokenize_template(std::string_view source) { return Lexer(source).run(); }

}  // namespace megatron::chat_template
