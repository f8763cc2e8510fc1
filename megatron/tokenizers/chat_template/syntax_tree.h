// A parsed chat template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatron/tokenizers/chat_template/value.h"

namespace megatron::chat_template {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// The kinds use these: `args` are operands in order, `name` is a name or operator.
struct Expression {
  enum class Kind {
    kLiteral,      ///< literal
    kName,         ///< name
    kList,         ///< args
    kDict,         ///< args: keys and values in turn
    kAttribute,    ///< args[0].name
    kItem,         ///< args[0][args[1]]
    kSlice,        ///< args[0][args[1]:args[2]:args[3]]; null where nothing stands
    kCall,         ///< args[0](args[1], ..., named)
    kFilter,       ///< args[0] | name(args[1], ..., named)
    kTest,         ///< args[0] is name(args[1], ...)
    kUnary,        ///< + or -, not
    kBinary,       ///< + - * / // % ** ~
    kCompare,      ///< args joined by `operators`: == != < <= > >= in "not in"
    kAnd,          ///< args[0] and args[1]
    kOr,           ///< args[0] or args[1]
    kConditional,  ///< args[1] if args[0] else args[2], which may be null
  };
  Kind kind;
  size_t line;
  std::string name = {};
  Value literal = {};
  std::vector<ExpressionPtr> args = {};
  std::vector<std::pair<std::string, ExpressionPtr>> named = {};
  std::vector<std::string> operators = {};
  int depth = 1;  ///< of expressions in each other

  void add(ExpressionPtr arg) {
    contain(arg);
    args.push_back(std::move(arg));
  }
  /// @throw DataError beyond kMaxDepth.
  void contain(const ExpressionPtr& part);
  static constexpr int kMaxDepth = 200;
};

struct Statement;
using Body = std::vector<Statement>;

struct Statement {
  enum class Kind {
    kText,      ///< text
    kPrint,     ///< expression
    kIf,        ///< expression: body, else otherwise
    kFor,       ///< targets in expression if condition: body; otherwise if there was no item
    kSet,       ///< targets = expression, or targets[0].attribute = expression
    kSetBlock,  ///< targets[0] = rendered body
    kMacro,     ///< text(targets with defaults): body
    kGroup,     ///< body
    kBreak,
    kContinue,
  };
  Kind kind;
  size_t line;
  std::string text = {};
  std::string attribute = {};
  std::vector<std::string> targets = {};
  std::vector<ExpressionPtr> defaults = {};  ///< of the last targets of a macro
  ExpressionPtr expression = {}, condition = {};
  Body body = {}, otherwise = {};
};

/// @throw DataError naming the line of a mistake, NotSupported naming a statement, filter or test that is not
/// supported.
Body parse_template(std::string_view source);

}  // namespace megatron::chat_template
