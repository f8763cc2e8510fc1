#include <algorithm>
#include <array>

#include "megatron/base/error.h"
#include "megatron/tokenizers/chat_template/expression_parser.h"

namespace megatron::chat_template {
namespace {
using Kind = Statement::Kind;
using Words = std::vector<std::string_view>;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Body run() { return parse_body({}); }

 private:
  /// Statements up to a tag that starts with one of `ends`, whose first word is taken; to the end of the template
  /// without them.
  Body parse_body(const Words& ends) {
    require<DataError>(++depth_ <= kMaxDepth, "line {} of the chat template: blocks are nested more than {} deep",
                       tokens_.next().line, kMaxDepth);
    Body body = parse_statements(ends);
    --depth_;
    return body;
  }

  Body parse_statements(const Words& ends) {
    Body body;
    while (!tokens_.next_is(TokenKind::kEnd)) {
      const size_t line = tokens_.next().line;
      if (tokens_.next_is(TokenKind::kText)) {
        body.push_back({.kind = Kind::kText, .line = line, .text = tokens_.take().text});
      } else if (tokens_.next_is(TokenKind::kExpressionBegin)) {
        tokens_.take();
        body.push_back({.kind = Kind::kPrint, .line = line, .expression = tokens_.parse_tuple()});
        tokens_.expect(TokenKind::kExpressionEnd, "'}}'");
      } else {
        tokens_.expect(TokenKind::kBlockBegin, "a tag");
        const std::string word = tokens_.take_name();
        if (std::ranges::find(ends, word) != ends.end()) {
          end_word_ = word;
          return body;
        }
        body.push_back(parse_statement(word, line));
      }
    }
    require<DataError>(ends.empty(), "the chat template ends inside of a block that {} would close",
                       ends.empty() ? "" : ends.back());
    return body;
  }

  void end_tag() { tokens_.expect(TokenKind::kBlockEnd, "'%}'"); }

  Statement parse_statement(const std::string& word, size_t line) {
    if (word == "if") return parse_if(line);
    if (word == "for") return parse_for(line);
    if (word == "set") return parse_set(line);
    if (word == "macro") return parse_macro(line);
    if (word == "generation") {
      end_tag();
      Statement group{.kind = Kind::kGroup, .line = line};
      group.body = parse_body({"endgeneration"});
      end_tag();
      return group;
    }
    if (word == "break" || word == "continue") {
      end_tag();
      return {.kind = word == "break" ? Kind::kBreak : Kind::kContinue, .line = line};
    }
    throw NotSupported(fmt::format("line {} of the chat template: the statement '{}' is not supported", line, word));
  }

  /// Behind "if" or "elif".
  Statement parse_if(size_t line) {
    Statement result{.kind = Kind::kIf, .line = line, .expression = tokens_.parse_tuple()};
    end_tag();
    result.body = parse_body({"elif", "else", "endif"});
    if (end_word_ == "elif") {
      ++depth_;  // checked by the bodies
      result.otherwise.push_back(parse_if(tokens_.next().line));
      --depth_;
      return result;
    }
    if (end_word_ == "else") {
      end_tag();
      result.otherwise = parse_body({"endif"});
    }
    end_tag();
    return result;
  }

  std::vector<std::string> parse_targets() {
    const bool has_bracket = tokens_.skip_operator("(");
    std::vector<std::string> targets = {tokens_.take_name()};
    while (tokens_.skip_operator(",")) targets.push_back(tokens_.take_name());
    if (has_bracket) tokens_.expect_operator(")");
    return targets;
  }

  Statement parse_for(size_t line) {
    Statement loop{.kind = Kind::kFor, .line = line, .targets = parse_targets()};
    if (!tokens_.skip_word("in")) tokens_.fail("'in'");
    loop.expression = tokens_.parse_tuple(false);
    if (tokens_.skip_word("if")) loop.condition = tokens_.parse();
    tokens_.skip_word("recursive");  // without calls of loop() it changes nothing; those are an error
    end_tag();
    loop.body = parse_body({"else", "endfor"});
    if (end_word_ == "else") {
      end_tag();
      loop.otherwise = parse_body({"endfor"});
    }
    end_tag();
    return loop;
  }

  Statement parse_set(size_t line) {
    Statement set{.kind = Kind::kSet, .line = line, .targets = parse_targets()};
    if (set.targets.size() == 1 && tokens_.skip_operator(".")) set.attribute = tokens_.take_name();
    if (tokens_.skip_operator("=")) {
      set.expression = tokens_.parse_tuple();
      end_tag();
      return set;
    }
    if (!tokens_.next_is(TokenKind::kBlockEnd) || set.targets.size() != 1 || !set.attribute.empty())
      tokens_.fail("'='");
    end_tag();
    set.kind = Kind::kSetBlock;
    set.body = parse_body({"endset"});
    end_tag();
    return set;
  }

  Statement parse_macro(size_t line) {
    Statement macro{.kind = Kind::kMacro, .line = line, .text = tokens_.take_name()};
    tokens_.expect_operator("(");
    while (!tokens_.skip_operator(")")) {
      macro.targets.push_back(tokens_.take_name());
      if (tokens_.skip_operator("="))
        macro.defaults.push_back(tokens_.parse());
      else if (!macro.defaults.empty())
        tokens_.fail("a default value");
      if (!tokens_.next_is_operator(")")) tokens_.expect_operator(",");
    }
    end_tag();
    macro.body = parse_body({"endmacro"});
    end_tag();
    return macro;
  }

  static constexpr int kMaxDepth = 200;
  ExpressionParser tokens_;
  int depth_ = 0;
  std::string end_word_;  // that ended the last body
};
}  // namespace

Body parse_template(std::string_view source) { return StatementParser(tokenize_template(source)).run(); }

}  // namespace megatron::chat_template
