#include "megatron/tokenizers/conversation_encoder.h"

#include <fmt/core.h>

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {
namespace {

// The templates of Megatron's own formats write each message by itself.
constexpr std::string_view kNemotronHAligned =
    "{% for m in messages %}"
    "{% if m['role'] == 'system' %}{{ '<SPECIAL_10>System\\n' + m['content'].strip() + '\\n' }}"
    "{% elif m['role'] == 'user' %}"
    "{{ '<SPECIAL_11>User\\n' + m['content'].strip() + '\\n<SPECIAL_11>Assistant\\n' }}"
    "{% elif m['role'] == 'assistant' %}{{ m['content'].strip() + '\\n' }}{% endif %}"
    "{% endfor %}";
constexpr std::string_view kNemotronNanoV2 =
    "{% for m in messages %}"
    "{% if m['role'] == 'system' %}"
    "{{ '<SPECIAL_10>System\\n' + m['content'].replace('/think', '').replace('/no_think', '').strip() + '\\n' }}"
    "{% elif m['role'] == 'user' %}"
    "{{ '<SPECIAL_11>User\\n' + m['content'].replace('/think', '').replace('/no_think', '').strip() + '\\n' }}"
    "{% elif m['role'] == 'assistant' %}"
    "{{ '<SPECIAL_11>Assistant\\n' + m['content'].strip() + '\\n<SPECIAL_12>\\n' }}{% endif %}"
    "{% endfor %}";
constexpr std::string_view kIdentity = "{% for m in messages %}{{ m['content'] }}{% endfor %}";

/// Tokens at the start of an answer that are not trained: "<SPECIAL_11>", "Assistant", "\n".
constexpr size_t kNanoV2HeaderTokens = 3;

std::string_view template_of(const ConversationEncoder::Options& options) {
  switch (options.format) {
    case PromptFormat::kNemotronHAligned:
      return kNemotronHAligned;
    case PromptFormat::kNemotronNanoV2:
      return kNemotronNanoV2;
    case PromptFormat::kIdentity:
      return kIdentity;
    default:
      return options.chat_template;
  }
}

TokenId pad_of(PromptFormat format, const Tokenizer& tokenizer) {
  if (has_chat_template(format)) {
    const auto pad = tokenizer.pad() ? tokenizer.pad() : tokenizer.eod();
    require<ConfigError>(pad && *pad >= 0 && *pad < tokenizer.vocab_size(),
                         "--sft: the tokenizer has neither a padding nor an end token to fill up sequences with. Name "
                         "one, such as eos_token in tokenizer_config.json");
    return *pad;
  }
  const std::string_view name = format == PromptFormat::kNemotronHAligned ? "<SPECIAL_233>" : "<unk>";
  const std::vector<TokenId> ids = tokenizer.encode(name);
  require<ConfigError>(ids.size() == 1,
                       "--sft-tokenizer-prompt-format: its padding token {} is not in the vocabulary. Choose "
                       "chat-template, which is the tokenizer's own format",
                       name);
  return ids.front();
}

/// The rules of Megatron's own formats.
void check_turns(std::span<const ChatMessage> messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    const bool is_answer = role == "assistant";
    require<DataError>(is_answer || role == "system" || role == "user" || role == "tool",
                       "message {} of a conversation has the role '{}'; possible are system, user, tool and assistant",
                       i + 1, role);
    require<DataError>(!is_answer || !messages[i].content.empty(),
                       "message {} of a conversation is an assistant turn without text", i + 1);
    require<DataError>(!is_answer || (i > 0 && (messages[i - 1].role == "user" || messages[i - 1].role == "tool")),
                       "message {} of a conversation is an assistant turn that follows no user or tool turn", i + 1);
  }
}

size_t length_of_common_start(std::span<const TokenId> a, std::span<const TokenId> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

ConversationEncoder::ConversationEncoder(const Tokenizer& tokenizer, const Options& options)
    : tokenizer_(tokenizer),
      format_(options.format),
      template_(template_of(options)),
      variables_(options.variables),
      pad_(pad_of(options.format, tokenizer)) {}

std::string ConversationEncoder::text_of(const Conversation& conversation, size_t num_messages,
                                         bool add_generation_prompt) const {
  ChatTemplate::Input input{.messages = "[", .add_generation_prompt = add_generation_prompt, .variables = variables_};
  for (const ChatMessage& message : conversation.messages.first(num_messages)) {
    if (input.messages.size() > 1) input.messages += ',';
    input.messages += message.json;
  }
  input.messages += ']';
  input.variables.insert(input.variables.end(), conversation.variables.begin(), conversation.variables.end());
  return template_.render(input);
}

ConversationEncoder::Rendered ConversationEncoder::render_turns(const Conversation& conversation) const {
  check_turns(conversation.messages);
  Rendered rendered;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const size_t begin = rendered.text.size();
    rendered.text += text_of({.messages = conversation.messages.subspan(i, 1)}, 1, false);
    if (conversation.messages[i].role == "assistant") rendered.answers.push_back({begin, rendered.text.size()});
  }
  return rendered;
}

ConversationEncoder::Rendered ConversationEncoder::render_with_answers(const Conversation& conversation) const {
  const size_t num_messages = conversation.messages.size();
  Rendered rendered{.text = text_of(conversation, num_messages, false), .answers = {}};
  for (size_t i = 0; i < num_messages; ++i) {
    if (conversation.messages[i].role != "assistant") continue;
    require<DataError>(i > 0, "message 1 of a conversation is an assistant turn that follows no other turn");
    const std::string before = text_of(conversation, i, true);
    const std::string until = i + 1 == num_messages ? rendered.text : text_of(conversation, i + 1, false);
    require<DataError>(rendered.text.starts_with(before) && rendered.text.starts_with(until),
                       "the chat template writes message {} of a conversation, an assistant turn, in another way when "
                       "it is generated or when further messages follow, so what is to be trained is not known. Give a "
                       "template that does not with --chat-template, or split the conversation behind this message",
                       i + 1);
    rendered.answers.push_back({before.size(), until.size()});
  }
  return rendered;
}

ConversationEncoder::Rendered ConversationEncoder::render(const Conversation& conversation) const {
  if (format_ == PromptFormat::kChatTemplate) return render_with_answers(conversation);
  if (format_ != PromptFormat::kDefault) return render_turns(conversation);
  Rendered rendered{.text = text_of(conversation, conversation.messages.size(), false), .answers = {}};
  rendered.answers.push_back({0, rendered.text.size()});
  return rendered;
}

EncodedConversation ConversationEncoder::encode(const Conversation& conversation) const {
  const Rendered rendered = render(conversation);
  const std::unique_ptr<TextEncoder> encoder = tokenizer_.make_encoder();
  EncodedConversation encoded;
  encoder->append(rendered.text, encoded.tokens);
  const std::vector<TokenId>& tokens = encoded.tokens;
  encoded.is_target.resize(tokens.size());

  const auto num_tokens_before = [&](size_t end) {
    if (end == 0 || end == rendered.text.size()) return end == 0 ? 0 : tokens.size();
    std::vector<TokenId> start;
    encoder->append(std::string_view(rendered.text).substr(0, end), start);
    return length_of_common_start(start, tokens);
  };
  const size_t num_header_tokens = format_ == PromptFormat::kNemotronNanoV2 ? kNanoV2HeaderTokens : 0;
  for (const Span& answer : rendered.answers)
    for (size_t i = num_tokens_before(answer.begin) + num_header_tokens, end = num_tokens_before(answer.end); i < end;
         ++i)
      // Megatron takes a padding token for padding wherever it stands, also where it ends an answer.
      encoded.is_target[i] = format_ == PromptFormat::kChatTemplate || tokens[i] != pad_;
  return encoded;
}

}  // namespace megatron
