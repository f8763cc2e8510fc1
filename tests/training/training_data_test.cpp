#include "megatron/training/training_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "megatron/base/error.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/datasets/sequence_counts.h"
#include "megatron/training/vocab.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"
#include "tests/testing/words.h"

namespace megatron {
namespace {

/// The largest token of a few samples of the training set, which are long enough to have all.
int64_t largest_mock_token(const std::string& words, int num_ranks) {
  PretrainConfig config = parse_pretrain_gpt(
      testing::words_of(
          "--num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 512 --max-position-embeddings "
          "512 --micro-batch-size 1 --global-batch-size 4 --train-iters 2 --lr 1e-3 --mock-data " +
          words),
      num_ranks, {});
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(config.tokenizer);
  set_vocab_size(config, tokenizer->vocab_size());
  const TrainingData data(config, *tokenizer, {}, {});
  int64_t largest = 0;
  GptSample sample;
  for (int64_t i = 0; i < 8; ++i) {
    data.datasets().train->read(i, sample);
    for (const auto* ids : {&sample.tokens, &sample.labels})
      largest = std::max(largest, *std::max_element(ids->begin(), ids->end()));
  }
  return largest;
}

TEST(TrainingData, MockTokensAreThoseOfTheTokenizerWhateverRowsThereAre) {
  const std::string numbers = "--tokenizer-type NullTokenizer --vocab-size 101 ";
  EXPECT_EQ(largest_mock_token(numbers + "--make-vocab-size-divisible-by 1", 1), 100);
  EXPECT_EQ(largest_mock_token(numbers, 1), 100);
  EXPECT_EQ(largest_mock_token(numbers + "--tensor-model-parallel-size 2", 2), 100);
  EXPECT_EQ(largest_mock_token("--tokenizer-type ByteLevelTokenizer", 1), 256);
}

using ::testing::HasSubstr;

constexpr const char* kSpecialTokens =
    " --tokenizer-special-tokens <fim_prefix> <fim_middle> <fim_suffix> <fim_pad> <|endoftext|>";

/// Documents of text, and a command line that trains on them.
class TextData : public ::testing::Test {
 protected:
  TextData() {
    PretrainConfig config = parse(kSpecialTokens, 1);
    const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(config.tokenizer);
    IndexedDatasetBuilder builder(scratch_.file("text"), {.token_type = TokenType::kInt32});
    for (int64_t d = 0; d < 40; ++d) {
      const std::string text = fmt::format("def number_{}():\n    return {} * {}  # \u00e9\u65e5\n", d, d * d, d + 3);
      const std::vector<TokenId> ids = tokenizer->encode(text + "<|endoftext|>");
      builder.add_item(std::vector<int64_t>(ids.begin(), ids.end()));
      builder.end_document();
    }
    builder.finalize();
  }

  PretrainConfig parse(const std::string& words, int num_ranks) const {
    return parse_pretrain_gpt(
        testing::words_of(
            "--num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 24 "
            "--max-position-embeddings 24 --micro-batch-size 2 --global-batch-size 4 --train-iters 6 "
            "--lr 1e-3 --eval-iters 0 --split 1,0,0 --tokenizer-type HuggingFaceTokenizer --tokenizer-model " +
            testing::source_path("tests/golden/tokenizers/hf/gpt2.json") + " --data-path " + scratch_.file("text") +
            words),
        num_ranks, {});
  }

  /// The samples that the ranks read from `begin` on, by their number, once as a run that began there.
  std::map<int64_t, std::vector<int64_t>> samples(const std::string& words, int num_ranks, int64_t begin) const {
    PretrainConfig config = parse(words, num_ranks);
    const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(config.tokenizer);
    set_vocab_size(config, tokenizer->vocab_size());
    const TrainingData data(config, *tokenizer, {}, {});
    std::map<int64_t, std::vector<int64_t>> samples;
    for (int rank = 0; rank < num_ranks; ++rank) {
      const auto batches = data.train_reader(rank, begin);
      for (const MicroBatch<int64_t>& batch : batches->read((24 - begin) / (2 * num_ranks)))
        for (int64_t b = 0; b < batch.num_samples; ++b) {
          const auto first = batch.tokens.begin() + b * batch.sequence_length;
          samples[batch.sample_indices[static_cast<size_t>(b)]] = {first, first + batch.sequence_length};
        }
    }
    return samples;
  }

  /// Returns the error of making the data set; empty if it throws nothing.
  std::string refusal(const std::string& words) const {
    try {
      samples(words, 1, 0);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  testing::ScratchDirectory scratch_;
};

TEST_F(TextData, FilledInTheMiddleIsTheSameOnAllLayoutsAndAfterAResumption) {
  const std::string words = std::string(kSpecialTokens) + " --fim-data --fim-rate 0.8";
  const auto all = samples(words, 1, 0);
  ASSERT_EQ(all.size(), 24);
  EXPECT_EQ(samples(words, 2, 0), all);
  auto rest = all;
  std::erase_if(rest, [](const auto& sample) { return sample.first < 8; });
  EXPECT_EQ(samples(words, 1, 8), rest);
  EXPECT_EQ(samples(words, 2, 8), rest);

  const auto plain = samples(kSpecialTokens, 1, 0);
  EXPECT_NE(plain, all);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(parse(kSpecialTokens, 1).tokenizer);
  const int64_t middle = tokenizer->id_of("<fim_middle>").value();
  const auto has_middle = [&](const auto& sample) { return std::ranges::count(sample.second, middle) > 0; };
  EXPECT_GT(std::ranges::count_if(all, has_middle), 12);
  EXPECT_EQ(std::ranges::count_if(plain, has_middle), 0);
}

TEST_F(TextData, FillingInTheMiddleNeedsItsTokensInTheVocabulary) {
  const std::string text = refusal(" --fim-data --fim-suffix-token <suf> --fim-eod-token a");
  for (const char* token : {"--fim-prefix-token <fim_prefix>", "--fim-middle-token <fim_middle>",
                            "--fim-suffix-token <suf>", "--fim-pad-token <fim_pad>"})
    EXPECT_THAT(text, HasSubstr(std::string(token) + ": the tokenizer has no such token"));
  EXPECT_THAT(text, HasSubstr("--tokenizer-special-tokens"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("--fim-eod-token")));
}

TEST_F(TextData, MustHaveTheCountsOfPerDatasetSequencesPath) {
  const std::string path = scratch_.file("counts.json"), flag = " --per-dataset-sequences-path " + path;
  const std::string prefix = scratch_.file("text");
  write_sequence_counts(path, count_sequences(std::vector{prefix}));
  EXPECT_EQ(samples(flag, 1, 0), samples("", 1, 0));
  write_sequence_counts(path, {{prefix, {.num_sequences = 40, .num_document_indices = 40}}});
  EXPECT_THAT(refusal(flag), HasSubstr("gives 40 sequences and 40 document indices to " + prefix +
                                       ", whose .idx has 40 and 41. Make the file again"));
  write_sequence_counts(path, {{prefix + "2", {.num_sequences = 40, .num_document_indices = 41}}});
  EXPECT_THAT(refusal(flag), HasSubstr("has no counts of " + prefix + "."));
}

TEST_F(TextData, OfAPhaseHasItsSamplesAloneAndBeginsWithThem) {
  const std::string flag = " --phase-transition-iterations 4,1";
  PretrainConfig config = parse(flag, 1);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(config.tokenizer);
  set_vocab_size(config, tokenizer->vocab_size());
  const TrainingData second(config, *tokenizer, {}, {.iteration = 1});
  PretrainConfig alone = parse("", 1);
  alone.training.train_iters = 3;
  set_vocab_size(alone, tokenizer->vocab_size());
  const TrainingData expected(alone, *tokenizer, {}, {});
  const auto ours = second.train_reader(0, 8), theirs = expected.train_reader(0, 4);
  EXPECT_EQ(ours->read(4).back().tokens, theirs->read(4).back().tokens);
  EXPECT_THROW(second.train_reader(0, 0), DataError);
  EXPECT_THROW(second.train_reader(0, 20), DataError);
}

TEST(TrainingPhases, AreBetweenTheTransitionsInTheirOrder) {
  TrainingConfig training;
  training.global_batch_size = 10;
  training.train_samples = 75;
  EXPECT_EQ(phase_after(training, 3), std::nullopt);
  training.phase_transition_iterations = "5, 2";
  EXPECT_EQ(phase_transitions_of(training), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(phase_after(training, 0), (TrainingPhase{0, 20}));
  EXPECT_EQ(phase_after(training, 1), (TrainingPhase{0, 20}));
  EXPECT_EQ(phase_after(training, 2), (TrainingPhase{20, 50}));
  EXPECT_EQ(phase_after(training, 5), (TrainingPhase{50, 75}));
  for (const char* bad : {"", "0", "-3", "a", "1,,2", "1.5", "3,3", "1,"}) {
    training.phase_transition_iterations = bad;
    EXPECT_THROW(phase_transitions_of(training), ConfigError) << bad;
  }
}

}  // namespace
}  // namespace megatron
