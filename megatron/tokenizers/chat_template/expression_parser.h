// Expressions of chat templates.
#pragma once

#include <string_view>
#include <vector>

#include "megatron/tokenizers/chat_template/lexer.h"
#include "megatron/tokenizers/chat_template/syntax_tree.h"

namespace megatron::chat_template {

/// Reads tokens from left to right. Precedence as in Jinja 3.1.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& next() const { return tokens_[position_]; }
  Token take() { return tokens_[position_++]; }
  bool next_is(TokenKind kind) const { return next().kind == kind; }
  bool next_is_word(std::string_view word) const { return next_is(TokenKind::kName) && next().text == word; }
  bool next_is_operator(std::string_view text) const { return next_is(TokenKind::kOperator) && next().text == text; }
  /// Takes the word or operator if it is next.
  bool skip_word(std::string_view word);
  bool skip_operator(std::string_view text);
  /// @throw DataError if something else is next.
  void expect_operator(std::string_view text);
  void expect(TokenKind kind, std::string_view what);
  std::string take_name();
  [[noreturn]] void fail(std::string_view expected) const;

  ExpressionPtr parse(bool with_condition = true);
  /// a, b, c: a list if there is a comma.
  ExpressionPtr parse_tuple(bool with_condition = true);

 private:
  using Kind = Expression::Kind;
  ExpressionPtr make(Kind kind, std::string name = {}) const;
  ExpressionPtr join(Kind kind, std::string name, ExpressionPtr left, ExpressionPtr right) const;
  static double float_of(const std::string& text);
  /// Counts a level of recursion. @throw DataError beyond Expression::kMaxDepth.
  void descend();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr operand);
  ExpressionPtr parse_call(ExpressionPtr operand);
  ExpressionPtr parse_subscript(ExpressionPtr operand);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr operand);
  ExpressionPtr parse_test(ExpressionPtr operand);
  void parse_arguments(Expression& call);

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace megatron::chat_template
