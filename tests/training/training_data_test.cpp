#include "megatron/training/training_data.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "megatron/training/vocab.h"
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
  const TrainingData data(config, *tokenizer, {});
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

}  // namespace
}  // namespace megatron
