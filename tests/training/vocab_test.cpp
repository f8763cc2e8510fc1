#include "megatron/training/vocab.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/core/shard_spec.h"
#include "megatron/training/config/pretrain_config.h"
#include "tests/testing/golden_json.h"

namespace megatron {
namespace {

TEST(Vocab, PadsToTheGoldenSizes) {
  int padded = 0;
  for (const auto& row : testing::golden_json("training/vocab_padding.json", "cases")) {
    SCOPED_TRACE(row.dump());
    ++padded;
    if (row[3].is_null())
      EXPECT_THROW(padded_vocab_size(row[0], row[1], row[2]), ConfigError);
    else
      EXPECT_EQ(padded_vocab_size(row[0], row[1], row[2]), row[3].get<int64_t>());
  }
  EXPECT_GT(padded, 0);
}

TEST(Vocab, GivesEachRankMegatronsRows) {
  const nlohmann::json rows = testing::golden_json("parallelism/shards.json", "vocab");
  ASSERT_FALSE(rows.empty());
  for (const auto& row : rows) {
    SCOPED_TRACE(row.dump());
    const int64_t padded = padded_vocab_size(row["vocab"], row["multiple"], row["tp"]);
    EXPECT_EQ(padded, row["padded"].get<int64_t>());
    const ShardSpec table = ShardSpec::cut_by({padded, 2}, {.sections = {{padded, false}}});
    for (int64_t rank = 0; rank < row["tp"]; ++rank) {
      const std::vector<int64_t> rows = row["ranges"][static_cast<size_t>(rank)];
      const std::vector<ShardBox> boxes = shard_boxes(table, {.tensor = {rank, row["tp"].get<int64_t>()}});
      EXPECT_EQ(boxes,
                std::vector<ShardBox>({{.global = {{rows[0], 0}, {rows[1] - rows[0], 2}}, .local_offsets = {0, 0}}}));
    }
  }
}

TEST(Vocab, TakesTheTokenizersSizeUnlessOneIsGiven) {
  PretrainConfig config;
  set_vocab_size(config, 50257);
  EXPECT_EQ(config.transformer.vocab_size, 50257);
  EXPECT_EQ(config.transformer.padded_vocab_size, 50304);

  PretrainConfig larger;
  larger.tokenizer.vocab_size = 60000;
  larger.tokenizer.pad_vocab_size = false;
  set_vocab_size(larger, 50257);
  EXPECT_EQ(larger.transformer.vocab_size, 60000);
  EXPECT_EQ(larger.transformer.padded_vocab_size, 60000);
}

TEST(Vocab, RefusesRowsThatDoNotHoldEveryEntry) {
  PretrainConfig config;
  config.tokenizer.vocab_size = 50000;
  EXPECT_THROW(set_vocab_size(config, 50257), ConfigError);
  config.tokenizer = {};
  config.tokenizer.padded_vocab_size = 50200;
  EXPECT_THROW(set_vocab_size(config, 50257), ConfigError);
}

TEST(Vocab, RefusesRowsThatDoNotDivideByTheRanks) {
  PretrainConfig config;
  config.parallel.tensor_model_parallel_size = 2;
  config.tokenizer.pad_vocab_size = false;
  EXPECT_THROW(set_vocab_size(config, 50257), ConfigError);
}

}  // namespace
}  // namespace megatron
