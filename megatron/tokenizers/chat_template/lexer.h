// A chat template as text, tags and the words in them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megatron::chat_template {

enum class TokenKind {
  kText,
  kExpressionBegin,
  kExpressionEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  std::string text;  ///< of a string: its value
  size_t line;       ///< counted from 1
};

/// Cuts a template as Jinja 3.1 does with trim_blocks and lstrip_blocks, without keep_trailing_newline.
/// @throw DataError naming the line if a tag or a string does not end, NotSupported for a character that no expression
/// has.
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace megatron::chat_template
