// Hugging Face tokenizers' answers, from tests/golden/tokenizers/gpt2 (made with tokenizers 0.23.3).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "megatron/tokenizers/gpt2_bpe_tokenizer.h"
#include "tests/testing/source_tree.h"
#include "tests/tokenizers/golden_rows.h"

namespace megatron {
namespace {
using testing::for_each_row;
using testing::has;
using testing::ids_of;
using testing::JsonRow;
using testing::text_of;

const std::string kFolder = testing::golden_path("tokenizers/gpt2/");

TEST(Gpt2BpeGolden, EveryLineEncodesAndDecodesAsTheReferenceDoes) {
  const Gpt2BpeTokenizer tokenizer({.vocab_file = kFolder + "vocab.json", .merge_file = kFolder + "merges.txt"});
  const auto encoder = tokenizer.make_encoder();
  for_each_row(kFolder + "cases.jsonl", [&](JsonRow row) {
    const std::vector<TokenId> expected = ids_of(row, "ids");
    const std::string text = has(row, "text") ? text_of(row, "text") : "";
    const std::string pair = has(row, "pair") ? text_of(row, "pair") : "";  // encoded behind the text
    EXPECT_EQ(tokenizer.decode(expected), has(row, "decoded") ? text_of(row, "decoded") : text + pair);
    if (has(row, "decode_only")) return;
    std::vector<TokenId> ids;
    encoder->append(text, ids);
    EXPECT_EQ(tokenizer.encode(text), ids) << "without the cache: " << text;
    encoder->append(pair, ids);
    EXPECT_EQ(ids, expected) << text << pair;
  });
}
}  // namespace
}  // namespace megatron
