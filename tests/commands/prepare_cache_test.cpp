#include "commands/prepare_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "megatron/datasets/indexed_dataset_builder.h"
#include "tests/commands/bad_input.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PrepareCache : public ::testing::Test {
 protected:
  PrepareCache() {
    for (const char* name : {"a", "b"}) {
      IndexedDatasetBuilder builder(scratch_.file(name), {.token_type = TokenType::kUInt16});
      for (int64_t document = 0; document < 50; ++document) {
        const std::vector<int64_t> tokens(40, document);
        builder.add_item(tokens);
        builder.end_document();
      }
      builder.finalize();
    }
  }
  Words flags() const {
    return words_of(
        "--num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16"
        " --micro-batch-size 1 --train-iters 4 --lr 1e-3 --tokenizer-type ByteLevelTokenizer"
        " --eval-iters 1 --eval-interval 2 --split 8,1,1 --data-cache-path " +
        scratch_.file("cache") + " --data-path 1 " + scratch_.file("a") + " 2 " + scratch_.file("b"));
  }
  int prepare(const std::string& more) {
    Words words = flags();
    for (const std::string& word : words_of(more)) words.push_back(word);
    std::ostringstream out, err;
    const int status = prepare_cache_command(words, out, err);
    out_ = out.str();
    err_ = err.str();
    return status;
  }
  /// Names of the files in the cache, with the time of their last change.
  std::map<std::string, fs::file_time_type> cached() const {
    std::map<std::string, fs::file_time_type> files;
    for (const auto& entry : fs::directory_iterator(scratch_.file("cache")))
      files[entry.path().filename()] = entry.last_write_time();
    return files;
  }
  const ScratchDirectory scratch_;
  std::string out_, err_;
};

TEST_F(PrepareCache, TrainingFindsAllOfItsIndices) {
  ASSERT_EQ(prepare("--prepare-cache-world-size 1 --global-batch-size 8"), 0) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("1 ranks, data-parallel size 1, global batch size 8"), HasSubstr("train       3")));
  const auto before = cached();
  EXPECT_GE(before.size(), 3 * (2 * 4 + 3)) << "two data sets and a blend for each split";
  Words train = flags();
  for (const std::string& word : words_of("--global-batch-size 8 --num-threads 1 --device cpu")) train.push_back(word);
  const Outcome outcome = run(Command::kPretrainGpt, train);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(cached(), before);
}

TEST_F(PrepareCache, NumberOfRanksSetsTheBatchSize) {
  ASSERT_EQ(prepare("--prepare-cache-world-size 8 --tensor-model-parallel-size 2"), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("8 ranks, data-parallel size 4, global batch size 4"));
}

TEST_F(PrepareCache, WhatIsNotCachedIsRejected) {
  EXPECT_NE(prepare("--sft"), 0);
  EXPECT_THAT(err_, HasSubstr("--sft: conversations are read in their order and not cached"));
  EXPECT_NE(prepare("--prepare-cache-world-size 0"), 0);
  EXPECT_THAT(err_, HasSubstr("--prepare-cache-world-size"));
}

}  // namespace
}  // namespace megatron::testing
