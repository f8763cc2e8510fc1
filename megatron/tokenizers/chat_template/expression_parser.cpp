#include "megatron/tokenizers/chat_template/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "megatron/base/error.h"
#include "megatron/tokenizers/chat_template/builtins.h"

namespace megatron::chat_template {

void Expression::contain(const ExpressionPtr& part) {
  if (part) depth = std::max(depth, part->depth + 1);
  require<DataError>(depth <= kMaxDepth, "line {} of the chat template: expressions are nested too deep", line);
}

bool ExpressionParser::skip_word(std::string_view word) {
  const bool is_next = next_is_word(word);
  position_ += is_next;
  return is_next;
}

bool ExpressionParser::skip_operator(std::string_view text) {
  const bool is_next = next_is_operator(text);
  position_ += is_next;
  return is_next;
}

void ExpressionParser::fail(std::string_view expected) const {
  throw DataError(
      fmt::format("line {} of the chat template: expected {}, found '{}'", next().line, expected, next().text));
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail(fmt::format("'{}'", text));
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (!next_is(kind)) fail(what);
  ++position_;
}

std::string ExpressionParser::take_name() {
  if (!next_is(TokenKind::kName)) fail("a name");
  return take().text;
}

ExpressionPtr ExpressionParser::make(Kind kind, std::string name) const {
  return std::make_unique<Expression>(Expression{.kind = kind, .line = next().line, .name = std::move(name)});
}

ExpressionPtr ExpressionParser::join(Kind kind, std::string name, ExpressionPtr left, ExpressionPtr right) const {
  ExpressionPtr result = make(kind, std::move(name));
  result->add(std::move(left));
  result->add(std::move(right));
  return result;
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_condition) {
  ExpressionPtr first = parse(with_condition);
  if (!next_is_operator(",")) return first;
  ExpressionPtr list = make(Kind::kList);
  list->add(std::move(first));
  while (skip_operator(",")) {
    if (next_is(TokenKind::kBlockEnd) || next_is(TokenKind::kExpressionEnd) || next_is_operator(")")) break;
    list->add(parse(with_condition));
  }
  return list;
}

void ExpressionParser::descend() {
  require<DataError>(++depth_ <= Expression::kMaxDepth, "line {} of the chat template: expressions are nested too deep",
                     next().line);
}

ExpressionPtr ExpressionParser::parse(bool with_condition) {
  descend();
  ExpressionPtr value = parse_or();
  while (with_condition && skip_word("if")) {
    ExpressionPtr choice = make(Kind::kConditional);
    choice->add(parse_or());
    choice->add(std::move(value));
    choice->add(skip_word("else") ? parse(true) : nullptr);
    value = std::move(choice);
  }
  --depth_;
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (skip_word("or")) left = join(Kind::kOr, "", std::move(left), parse_and());
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (skip_word("and")) left = join(Kind::kAnd, "", std::move(left), parse_not());
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!skip_word("not")) return parse_compare();
  descend();
  ExpressionPtr result = make(Kind::kUnary, "not");
  result->add(parse_not());
  --depth_;
  return result;
}

ExpressionPtr ExpressionParser::parse_compare() {
  constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", "<=", ">", ">="};
  ExpressionPtr left = parse_sum(), result;
  while (true) {
    std::string name;
    if (next_is(TokenKind::kOperator) && std::ranges::find(kOperators, next().text) != kOperators.end()) {
      name = take().text;
    } else if (skip_word("in")) {
      name = "in";
    } else if (next_is_word("not") && tokens_[position_ + 1].text == "in") {
      position_ += 2;
      name = "not in";
    } else {
      return result ? std::move(result) : std::move(left);
    }
    if (!result) {
      result = make(Kind::kCompare);
      result->add(std::move(left));
    }
    result->operators.push_back(name);
    result->add(parse_sum());
  }
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr left = parse_concatenation();
  while (next_is_operator("+") || next_is_operator("-")) {
    const std::string name = take().text;
    left = join(Kind::kBinary, name, std::move(left), parse_concatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  ExpressionPtr left = parse_product();
  while (skip_operator("~")) left = join(Kind::kBinary, "~", std::move(left), parse_product());
  return left;
}

ExpressionPtr ExpressionParser::parse_product() {
  ExpressionPtr left = parse_power();
  while (next_is_operator("*") || next_is_operator("/") || next_is_operator("//") || next_is_operator("%")) {
    const std::string name = take().text;
    left = join(Kind::kBinary, name, std::move(left), parse_power());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr left = parse_unary(true);
  while (skip_operator("**")) left = join(Kind::kBinary, "**", std::move(left), parse_unary(true));
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPtr result;
  if (next_is_operator("-") || next_is_operator("+")) {
    descend();
    result = make(Kind::kUnary, take().text);
    result->add(parse_unary(false));
    --depth_;
  } else {
    result = parse_primary();
  }
  result = parse_postfix(std::move(result));
  return with_filters ? parse_filters_and_tests(std::move(result)) : std::move(result);
}

double ExpressionParser::float_of(const std::string& text) {
  double number = 0;
  require<NotSupported>(std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc(),
                        "the chat template has the number {}, which is out of range", text);
  return number;
}

ExpressionPtr ExpressionParser::parse_primary() {
  if (next_is_operator("[")) return parse_list();
  if (next_is_operator("{")) return parse_dict();
  if (skip_operator("(")) {
    if (skip_operator(")")) return make(Kind::kList);
    ExpressionPtr inner = parse_tuple();
    expect_operator(")");
    return inner;
  }
  ExpressionPtr result = make(Kind::kLiteral);
  if (next_is(TokenKind::kString)) {
    std::string text = take().text;
    while (next_is(TokenKind::kString)) text += take().text;  // neighbours are one string
    result->literal = text;
  } else if (next_is(TokenKind::kInteger)) {
    int64_t number = 0;
    const std::string text = take().text;
    require<NotSupported>(std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc(),
                          "the chat template has the number {}, which has more than 63 bits", text);
    result->literal = number;
  } else if (next_is(TokenKind::kFloat)) {
    result->literal = float_of(take().text);
  } else if (next_is(TokenKind::kName)) {
    const std::string name = take().text;
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      result->literal = name == "true" || name == "True";
    } else if (name == "none" || name == "None") {
      result->literal = Value::None{};
    } else {
      result->kind = Kind::kName;
      result->name = name;
    }
  } else {
    fail("a value");
  }
  return result;
}

ExpressionPtr ExpressionParser::parse_list() {
  ExpressionPtr list = make(Kind::kList);
  expect_operator("[");
  while (!skip_operator("]")) {
    list->add(parse());
    if (!next_is_operator("]")) expect_operator(",");
  }
  return list;
}

ExpressionPtr ExpressionParser::parse_dict() {
  ExpressionPtr dict = make(Kind::kDict);
  expect_operator("{");
  while (!skip_operator("}")) {
    dict->add(parse());
    expect_operator(":");
    dict->add(parse());
    if (!next_is_operator("}")) expect_operator(",");
  }
  return dict;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr operand) {
  while (true) {
    if (skip_operator(".")) {
      if (next_is(TokenKind::kInteger)) {  // messages.0 is messages[0]
        operand = join(Kind::kItem, "", std::move(operand), parse_primary());
        continue;
      }
      ExpressionPtr result = make(Kind::kAttribute, take_name());
      result->add(std::move(operand));
      operand = std::move(result);
    } else if (next_is_operator("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (next_is_operator("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr operand) {
  ExpressionPtr call = make(Kind::kCall);
  call->add(std::move(operand));
  parse_arguments(*call);
  return call;
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr operand) {
  expect_operator("[");
  ExpressionPtr first = next_is_operator(":") ? nullptr : parse();
  if (!next_is_operator(":")) {
    expect_operator("]");
    return join(Kind::kItem, "", std::move(operand), std::move(first));
  }
  ExpressionPtr slice = make(Kind::kSlice);
  slice->add(std::move(operand));
  slice->add(std::move(first));
  for (int i = 0; i < 2; ++i) {
    const bool has_bound = skip_operator(":") && !next_is_operator(":") && !next_is_operator("]");
    slice->add(has_bound ? parse() : nullptr);
  }
  expect_operator("]");
  return slice;
}

void ExpressionParser::parse_arguments(Expression& call) {
  expect_operator("(");
  while (!skip_operator(")")) {
    if (next_is(TokenKind::kName) && tokens_[position_ + 1].kind == TokenKind::kOperator &&
        tokens_[position_ + 1].text == "=") {
      const std::string name = take().text;
      expect_operator("=");
      call.named.emplace_back(name, parse());
      call.contain(call.named.back().second);
    } else {
      if (next_is_operator("*") || next_is_operator("**"))
        throw NotSupported(fmt::format("line {} of the chat template: arguments after *", next().line));
      call.add(parse());
    }
    if (!next_is_operator(")")) expect_operator(",");
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr operand) {
  while (true) {
    if (skip_operator("|")) {
      ExpressionPtr filter = make(Kind::kFilter, take_name());
      require<NotSupported>(is_filter(filter->name), "line {} of the chat template: the filter '{}' is not supported",
                            filter->line, filter->name);
      filter->add(std::move(operand));
      if (next_is_operator("(")) parse_arguments(*filter);
      operand = std::move(filter);
    } else if (skip_word("is")) {
      operand = parse_test(std::move(operand));
    } else if (next_is_operator("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr operand) {
  const bool is_negated = skip_word("not");
  ExpressionPtr test = make(Kind::kTest, take_name());
  require<NotSupported>(is_test(test->name), "line {} of the chat template: the test '{}' is not supported", test->line,
                        test->name);
  test->add(std::move(operand));
  constexpr std::array<std::string_view, 6> kEnds = {"else", "or", "and", "is", "if", "in"};
  const bool has_value = next_is(TokenKind::kString) || next_is(TokenKind::kInteger) || next_is(TokenKind::kFloat) ||
                         next_is_operator("[") || next_is_operator("{") ||
                         (next_is(TokenKind::kName) && std::ranges::find(kEnds, next().text) == kEnds.end());
  if (next_is_operator("("))
    parse_arguments(*test);
  else if (has_value)
    test->add(parse_postfix(parse_primary()));
  if (!is_negated) return test;
  ExpressionPtr result = make(Kind::kUnary, "not");
  result->add(std::move(test));
  return result;
}

}  // namespace megatron::chat_template
