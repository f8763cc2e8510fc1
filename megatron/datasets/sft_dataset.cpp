#include "megatron/datasets/sft_dataset.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"

namespace megatron {
namespace {
using Json = nlohmann::ordered_json;

/// The messages of a row, and its other keys, which a chat template may use.
struct Row {
  std::vector<ChatMessage> messages;
  std::vector<std::pair<std::string, std::string>> variables;
};

ChatMessage message_of(const Json& json, size_t number) {
  require<DataError>(json.is_object() && json.contains("role") && json["role"].is_string(),
                     "message {} is not an object with a role", number);
  const bool has_text = json.contains("content") && json["content"].is_string();
  return {.role = json["role"], .content = has_text ? json["content"].get<std::string>() : "", .json = json.dump()};
}

Row parse_row(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  require<DataError>(json.is_object() && json.contains("messages") && json["messages"].is_array(),
                     "the line is not a JSON object whose key messages has a list");
  Row row;
  for (const Json& message : json["messages"]) row.messages.push_back(message_of(message, row.messages.size() + 1));
  require<DataError>(!row.messages.empty(), "the list of messages is empty");
  for (const auto& [name, value] : json.items())
    if (name != "messages" && name != "add_generation_prompt") row.variables.emplace_back(name, value.dump());
  return row;
}

/// Every system message begins a conversation.
std::vector<Conversation> conversations_of(const Row& row) {
  std::vector<Conversation> conversations;
  const std::span<const ChatMessage> messages(row.messages);
  for (size_t begin = 0, end = 1; begin < messages.size(); begin = end++) {
    while (end < messages.size() && messages[end].role != "system") ++end;
    conversations.push_back({.messages = messages.subspan(begin, end - begin), .variables = row.variables});
  }
  return conversations;
}

}  // namespace

SftRow read_sft_row(std::string_view text, const ConversationEncoder& encoder) {
  const Row row = parse_row(text);
  SftRow result;
  for (const Conversation& conversation : conversations_of(row)) {
    const EncodedConversation encoded = encoder.encode(conversation);
    ++result.num_conversations;
    result.num_tokens += std::ssize(encoded.tokens);
    result.num_targets += std::count(encoded.is_target.begin(), encoded.is_target.end(), true);
  }
  return result;
}

/// Conversations one after the other, and a token more than a sample has.
struct SftDataset::Pack {
  std::vector<int64_t> tokens, positions;
  std::vector<bool> is_target;
  std::vector<int64_t> ends;  // of conversations, with the padding behind them

  void add_token(int64_t token, bool target, int64_t position) {
    tokens.push_back(token);
    is_target.push_back(target);
    positions.push_back(position);
  }
  void add_padding(int64_t pad) { add_token(pad, false, positions.empty() ? 0 : positions.back() + 1); }
};

SftDataset::SftDataset(const JsonlRows& rows, const GptDatasetPart& part, const GptDatasetConfig& config)
    : rows_(rows),
      range_(part.sequences),
      num_samples_(part.num_samples.value_or(part.sequences.size())),
      sequence_length_(config.sequence_length),
      context_parallel_size_(config.context_parallel_size),
      encoder_(*config.conversations) {
  require<DataError>(range_.size() > 0 || num_samples_ == 0,
                     "{}: the {} split has none of {} conversations, but {} samples of it are needed. Give the split a "
                     "larger share with --split, add data, or request no samples (--eval-iters 0).",
                     rows.path(), name_of(part.split), rows.size(), num_samples_);
  identity_ = {.class_name = "SFTDataset",
               .dataset_path = rows.path(),
               .num_samples = part.num_samples,
               .index_split = part.split,
               .random_seed = config.random_seed,
               .sequence_length = config.sequence_length,
               .split = part.split_text,
               .split_matrix = part.split_matrix,
               .tokenizer = config.tokenizer.identity};
}

SftDataset::Pack SftDataset::pack_row(std::string_view text) const {
  const Row row = parse_row(text);
  const auto longest = static_cast<size_t>(sequence_length_) + 1;
  // With context parallelism each conversation is cut into this many equal parts.
  const size_t multiple = context_parallel_size_ > 1 ? 2 * static_cast<size_t>(context_parallel_size_) : 1;
  Pack pack;
  for (const Conversation& conversation : conversations_of(row)) {
    const EncodedConversation encoded = encoder_.encode(conversation);
    for (size_t i = 0; i < encoded.tokens.size(); ++i)
      pack.add_token(encoded.tokens[i], encoded.is_target[i], static_cast<int64_t>(i));
    while (pack.tokens.size() % multiple != 0) pack.add_padding(encoder_.pad());
    pack.ends.push_back(std::ssize(pack.tokens));
    if (pack.tokens.size() >= longest) break;
  }
  if (pack.tokens.size() >= longest) {  // the last token is no label, as in Megatron
    pack.tokens.resize(longest);
    pack.is_target.resize(longest);
    pack.positions.resize(longest);
    pack.tokens.back() = encoder_.pad();
    pack.is_target.back() = false;
  }
  while (pack.tokens.size() < longest) pack.add_padding(encoder_.pad());
  return pack;
}

void SftDataset::read(int64_t index, GptSample& sample) const {
  require<DataError>(index >= 0 && index < size(), "{}: sample {} was requested; there are {}", rows_.path(), index,
                     size());
  const int64_t row = range_.begin + index % range_.size();
  Pack pack;
  try {
    pack = pack_row(rows_.row(row));
  } catch (const Error& error) {
    throw DataError(fmt::format("{}:{}: {}", rows_.path(), rows_.line_number(row), error.what()));
  }
  const auto s = static_cast<size_t>(sequence_length_);
  sample.tokens.assign(pack.tokens.begin(), pack.tokens.end() - 1);
  sample.position_ids.assign(pack.positions.begin(), pack.positions.end() - 1);
  sample.labels.assign(s, 0);
  sample.loss_mask.assign(s, 0.0f);
  for (size_t i = 0; i < s; ++i) {
    if (!pack.is_target[i + 1]) continue;
    sample.labels[i] = pack.tokens[i + 1];
    sample.loss_mask[i] = 1.0f;
  }
  sample.document_cuts.clear();
  for (size_t i = 0; i + 1 < pack.ends.size(); ++i) {
    const int64_t cut = pack.ends[i];
    const bool is_new = sample.document_cuts.empty() ? cut > 0 : cut > sample.document_cuts.back();
    if (is_new && cut < sequence_length_) sample.document_cuts.push_back(static_cast<int32_t>(cut));
  }
  sample.dataset_id = 0;
}

}  // namespace megatron
