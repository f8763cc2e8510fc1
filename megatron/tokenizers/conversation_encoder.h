// Conversations as tokens, with a mark on those that are trained.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "megatron/tokenizers/chat_template/chat_template.h"
#include "megatron/tokenizers/prompt_format.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

struct ChatMessage {
  std::string role;
  std::string content;  ///< empty if it is no text
  std::string json;     ///< the message as an object: {"role": ..., "content": ..., ...}
};

/// A view of one conversation.
struct Conversation {
  std::span<const ChatMessage> messages;
  /// Names and JSON of further variables of a chat template, such as tools.
  std::span<const std::pair<std::string, std::string>> variables = {};
};

struct EncodedConversation {
  std::vector<TokenId> tokens;
  std::vector<bool> is_target;  ///< for each token, whether predicting it is trained
};

/// Encodes conversations in one format. Immutable: threads may share it.
/// Source: Megatron Core, SFTTokenizer.tokenize_conversation.
class ConversationEncoder {
 public:
  struct Options {
    PromptFormat format = PromptFormat::kNemotronHAligned;
    std::string chat_template = {};                                   ///< in Jinja; of the formats that have one
    std::vector<std::pair<std::string, std::string>> variables = {};  ///< of the template: names and JSON
  };
  /// @param tokenizer  must outlive the encoder; it adds no special tokens to a text, since formats write their own.
  /// @throw ConfigError if the vocabulary lacks the padding token of the format; what reading the template throws.
  ConversationEncoder(const Tokenizer& tokenizer, const Options& options);

  /// Fills up sequences of a fixed length.
  TokenId pad() const { return pad_; }
  int64_t vocab_size() const { return tokenizer_.vocab_size(); }

  /// The tokens are those of the conversation's whole text. A token that begins before an answer and ends in it is
  /// trained; one that begins in an answer and ends behind it is not.
  /// @throw DataError if a role is unknown, an answer is empty or follows no question, the template refuses the
  ///        messages or writes an answer in another way when further messages follow.
  EncodedConversation encode(const Conversation& conversation) const;

 private:
  /// Bytes [begin, end) of a text.
  struct Span {
    size_t begin, end;
  };
  struct Rendered {
    std::string text;
    std::vector<Span> answers;
  };
  Rendered render(const Conversation& conversation) const;
  Rendered render_turns(const Conversation& conversation) const;
  Rendered render_with_answers(const Conversation& conversation) const;
  std::string text_of(const Conversation& conversation, size_t num_messages, bool add_generation_prompt) const;

  const Tokenizer& tokenizer_;
  PromptFormat format_;
  ChatTemplate template_;
  std::vector<std::pair<std::string, std::string>> variables_;
  TokenId pad_;
};

}  // namespace megatron
