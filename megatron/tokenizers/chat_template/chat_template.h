// Chat templates: conversations as the text that a model was trained on.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron::chat_template {
struct Statement;
}

namespace megatron {

/// A template in Jinja, as transformers' apply_chat_template renders it. Loops, conditions, set, macros, namespaces and
/// the filters, tests and methods that templates of models use are supported; everything else is refused by name when
/// the template is read. Immutable; threads may share it.
class ChatTemplate {
 public:
  /// @throw DataError naming the line of a mistake, NotSupported naming what is not supported.
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  struct Input {
    std::string messages;                ///< JSON: a list of {"role", "content", ...}
    bool add_generation_prompt = false;  ///< ends with the start of an answer
    /// Further variables: names and JSON, such as {"bos_token", "\"<s>\""} or {"tools", "[...]"}.
    std::vector<std::pair<std::string, std::string>> variables = {};
  };
  /// @throw DataError with the text of raise_exception(), or for values that an operation does not take.
  std::string render(const Input& input) const;

 private:
  std::vector<chat_template::Statement> body_;
};

}  // namespace megatron
