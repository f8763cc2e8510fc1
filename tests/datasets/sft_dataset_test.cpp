// Conversations as samples, against those of Megatron's SFTDataset and SFTTokenizer (tests/golden/data/sft).
#include "megatron/datasets/sft_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/datasets/dataset_builder.h"
#include "megatron/tokenizers/chat_template_source.h"
#include "megatron/tokenizers/utf8.h"
#include "tests/datasets/golden.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::golden;
using ::testing::HasSubstr;
using testing::is_error;
using testing::kGoldenData;
using testing::list;

template <class E, class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

const std::string kRows = kGoldenData + "/sft/rows.jsonl";

/// The id of a character is its code point.
class CharacterTokenizer final : public Tokenizer {
 public:
  std::unique_ptr<TextEncoder> make_encoder() const override { return std::make_unique<Encoder>(); }
  std::string decode(std::span<const TokenId>) const override { return ""; }
  int64_t vocab_size() const override { return 70000; }
  std::optional<TokenId> eod() const override { return 69999; }
  std::optional<TokenId> pad() const override { return 0; }
  TokenizerIdentity identity() const override { return {}; }

 private:
  struct Encoder final : TextEncoder {
    void append(std::string_view text, std::vector<TokenId>& ids) override {
      for (size_t at = 0; at < text.size();) {
        ids.push_back(static_cast<TokenId>(code_point_at(text, at)));
        at += utf8_length(text[at]);
      }
    }
  };
};

/// Writes a character for the role, and the content.
constexpr const char* kRolesAndContents =
    "{% for m in messages %}{% if m.role == 'system' %}{{ '\x01' }}{% elif m.role == 'user' %}{{ '\x02' }}"
    "{% elif m.role == 'assistant' %}{{ '\x03' }}{% else %}{{ '\x04' }}{% endif %}{{ m.content }}{% endfor %}";

std::unique_ptr<Tokenizer> golden_tokenizer() {
  return make_tokenizer(
      {.type = "SFTTokenizer", .model = kGoldenData + "/sft/tokenizer", .hf_no_include_special_tokens = true});
}

ConversationEncoder encoder_of(const Tokenizer& tokenizer, PromptFormat format) {
  const ChatTemplateSource source =
      find_chat_template({.type = "SFTTokenizer", .model = kGoldenData + "/sft/tokenizer"}, std::nullopt);
  return ConversationEncoder(tokenizer,
                             {.format = format, .chat_template = source.text, .variables = source.variables});
}

/// Megatron's labels, with 0 where nothing is trained.
void expect_equal_sample(const json& expected, const GptSample& sample) {
  std::vector<int64_t> labels = list<int64_t>(expected["labels"]);
  const auto mask = list<float>(expected["loss_mask"]);
  for (size_t i = 0; i < labels.size(); ++i)
    if (mask[i] == 0) labels[i] = 0;
  auto cuts = list<int32_t>(expected["cu_seqlens"]);  // from 0 to the length
  cuts.erase(cuts.begin());
  cuts.pop_back();
  EXPECT_EQ(sample.tokens, list<int64_t>(expected["tokens"]));
  EXPECT_EQ(sample.labels, labels);
  EXPECT_EQ(sample.loss_mask, mask);
  EXPECT_EQ(sample.position_ids, list<int64_t>(expected["position_ids"]));
  EXPECT_EQ(sample.document_cuts, cuts);
}

void expect_equal_packs(const json& expected, const ConversationEncoder& encoder) {
  GptDatasetConfig config{.sequence_length = expected["sequence_length"]};
  config.conversations = &encoder;
  config.context_parallel_size = expected["context_parallel_size"];
  const JsonlRows rows(kRows);
  const SftDataset dataset(
      rows,
      {.sequences = {expected["indices"][0], expected["indices"][1]}, .num_samples = expected["length"].get<int64_t>()},
      config);
  ASSERT_EQ(dataset.size(), expected["length"]);
  GptSample sample;
  int num_compared = 0;
  for (const json& item : expected["samples"]) {
    SCOPED_TRACE(item["index"].dump());
    if (is_error(item)) {
      EXPECT_THROW(dataset.read(item["index"], sample), DataError);
      continue;
    }
    dataset.read(item["index"], sample);
    expect_equal_sample(item, sample);
    ++num_compared;
  }
  EXPECT_GT(num_compared, 0);
}

TEST(SftDatasetGolden, ConversationsArePackedAsMegatronDoes) {
  const CharacterTokenizer tokenizer;
  const ConversationEncoder encoder(tokenizer,
                                    {.format = PromptFormat::kChatTemplate, .chat_template = kRolesAndContents});
  const json& packs = golden("sft/packs.json");
  for (const auto& [name, expected] : packs["stub"].items()) {
    SCOPED_TRACE(name);
    expect_equal_packs(expected, encoder);
  }
}

TEST(SftDatasetGolden, EveryPromptFormatHasMegatronsTokensAndTargets) {
  const std::unique_ptr<Tokenizer> tokenizer = golden_tokenizer();
  const json& formats = golden("sft/tokenizer.json")["formats"];
  int num_formats = 0;
  for (const auto& [format, name] : names_of_enum(PromptFormat{})) {
    if (format == PromptFormat::kChatTemplate) continue;  // Megatron has none
    SCOPED_TRACE(name);
    const json& expected = formats[std::string(name)];
    const ConversationEncoder encoder = encoder_of(*tokenizer, format);
    EXPECT_EQ(encoder.pad(), expected["pad"]);
    EXPECT_EQ(encoder.vocab_size(), expected["vocab_size"]);
    expect_equal_packs(expected["packs"], encoder);
    ++num_formats;
  }
  EXPECT_EQ(num_formats, 4);
}

/// A file of lines, and its data set with the golden tokenizer.
class SftDatasetTest : public ::testing::Test {
 protected:
  std::string write(const std::string& lines) {
    const std::string path = scratch_.path() + "/chats.jsonl";
    testing::write_bytes(path, lines);
    return path;
  }
  /// The trained part of the first row, as text.
  std::string trained_text(const std::string& line, const ConversationEncoder& encoder) {
    const JsonlRows rows(write(line));
    GptDatasetConfig config{.sequence_length = 256};
    config.conversations = &encoder;
    GptSample sample;
    SftDataset(rows, {.sequences = {0, 1}}, config).read(0, sample);
    std::vector<TokenId> ids;
    for (size_t i = 0; i < sample.labels.size(); ++i)
      if (sample.loss_mask[i] != 0) ids.push_back(static_cast<TokenId>(sample.labels[i]));
    return tokenizer_->decode(ids);
  }
  std::string error_of_row(const std::string& lines, int64_t row, PromptFormat format) {
    const JsonlRows rows(write(lines));
    const ConversationEncoder encoder = encoder_of(*tokenizer_, format);
    GptDatasetConfig config{.sequence_length = 64};
    config.conversations = &encoder;
    const SftDataset dataset(rows, {.sequences = {0, rows.size()}}, config);
    GptSample sample;
    return error_of<DataError>([&] { dataset.read(row, sample); });
  }

  const testing::ScratchDirectory scratch_;
  const std::unique_ptr<Tokenizer> tokenizer_ = golden_tokenizer();
};

constexpr const char* kTwoAnswers =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "one"},)"
    R"( {"role": "user", "content": "b"}, {"role": "assistant", "content": "two"}]})";

TEST_F(SftDatasetTest, ChatTemplateTrainsAnswersOnlyWithTheirEndToken) {
  constexpr const char* kTemplate =
      "{% for m in messages %}{{ '<SPECIAL_10>' + m.role + '\n' + m.content + '</s>\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<SPECIAL_10>assistant\n' }}{% endif %}";
  const ConversationEncoder encoder(*tokenizer_, {.format = PromptFormat::kChatTemplate, .chat_template = kTemplate});
  EXPECT_EQ(trained_text(kTwoAnswers, encoder), "one</s>\ntwo</s>\n");
}

TEST_F(SftDatasetTest, ChatTemplateThatRewritesAnEarlierAnswerIsRejected) {
  constexpr const char* kTemplate =
      "{% for m in messages %}{% if m.role == 'user' or loop.last %}{{ m.content }}{% else %}-{% endif %}{% endfor %}";
  const ConversationEncoder encoder(*tokenizer_, {.format = PromptFormat::kChatTemplate, .chat_template = kTemplate});
  EXPECT_THAT(error_of<DataError>([&] { trained_text(kTwoAnswers, encoder); }),
              HasSubstr("chats.jsonl:1: the chat template writes message 2 of a conversation, an assistant turn, in"));
}

TEST_F(SftDatasetTest, BadRowsAreNamedByFileAndLine) {
  const std::string lines = std::string(kTwoAnswers) +
                            "\n\n"
                            "{\"messages\": [}\n"
                            "{\"messages\": []}\n"
                            "{\"messages\": [{\"role\": \"bot\", \"content\": \"x\"}]}\n"
                            "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}\n"
                            "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\"}]}\n"
                            "{\"text\": \"x\"}";
  const auto error = [&](int64_t row) { return error_of_row(lines, row, PromptFormat::kIdentity); };
  EXPECT_THAT(error(1), HasSubstr("chats.jsonl:3: the line is not a JSON object whose key messages has a list"));
  EXPECT_THAT(error(2), HasSubstr("chats.jsonl:4: the list of messages is empty"));
  EXPECT_THAT(error(3), HasSubstr("chats.jsonl:5: message 1 of a conversation has the role 'bot'"));
  EXPECT_THAT(error(4), HasSubstr("chats.jsonl:6: message 1 of a conversation is an assistant turn that follows no"));
  EXPECT_THAT(error(5), HasSubstr("chats.jsonl:7: message 2 of a conversation is an assistant turn without text"));
  EXPECT_THAT(error(6), HasSubstr("chats.jsonl:8: the line is not a JSON object"));
}

TEST_F(SftDatasetTest, PaddingTokenOfTheFormatMustBeInTheVocabulary) {
  const std::unique_ptr<Tokenizer> bytes = make_tokenizer({.type = "ByteLevelTokenizer"});
  EXPECT_THAT(error_of<ConfigError>([&] { ConversationEncoder(*bytes, {}); }),
              HasSubstr("its padding token <SPECIAL_233> is not in the vocabulary"));
}

TEST_F(SftDatasetTest, UnweightedFilesCountWithTheirLines) {
  const ConversationEncoder encoder = encoder_of(*tokenizer_, PromptFormat::kIdentity);
  GptDatasetConfig config{.sequence_length = 64};
  config.conversations = &encoder;
  const std::string short_file = write(std::string(kTwoAnswers) + "\n" + kTwoAnswers + "\n");
  const GptDatasets datasets = build_gpt_datasets(
      config, {.blend = Blend{{kRows, short_file}, std::nullopt}, .split = "1,0,0"}, SampleCounts{}, {});
  EXPECT_EQ(datasets.train->size(), 12);
  GptSample sample;
  std::vector<int> num_samples(2);
  for (int64_t i = 0; i < datasets.train->size(); ++i) {
    datasets.train->read(i, sample);
    ++num_samples[static_cast<size_t>(sample.dataset_id)];
  }
  EXPECT_THAT(num_samples, ::testing::ElementsAre(10, 2));
}

}  // namespace
}  // namespace megatron
