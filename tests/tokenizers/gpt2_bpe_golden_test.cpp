// Hugging Face tokenizers' answers, from tests/golden/tokenizers/gpt2 (made with tokenizers 0.23.3).
#include <gtest/gtest.h>
#include <simdjson.h>

#include <fstream>
#include <string>
#include <vector>

#include "megatron/tokenizers/gpt2_bpe_tokenizer.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {
const std::string kFolder = testing::golden_path("tokenizers/gpt2/");

struct Case {
  bool decode_only;
  std::string text, pair;  // a pair of texts is encoded one after the other
  std::string decoded;
  std::vector<TokenId> ids;
};

std::string string_or(const simdjson::dom::element& object, std::string_view key, std::string otherwise) {
  std::string_view value;
  return object[key].get(value) ? otherwise : std::string(value);
}

std::vector<Case> cases() {
  std::vector<Case> result;
  simdjson::dom::parser parser;
  std::ifstream file(kFolder + "cases.jsonl");
  for (std::string line; std::getline(file, line);) {
    const simdjson::dom::element object = parser.parse(line).value();
    const std::string text = string_or(object, "text", ""), pair = string_or(object, "pair", "");
    Case one{.decode_only = object["decode_only"].error() == simdjson::SUCCESS,
             .text = text,
             .pair = pair,
             .decoded = string_or(object, "decoded", text + pair),
             .ids = {}};
    for (const auto id : object["ids"].get_array()) one.ids.push_back(static_cast<TokenId>(int64_t{id}));
    result.push_back(std::move(one));
  }
  return result;
}

TEST(Gpt2BpeGolden, EveryLineEncodesAndDecodesAsTheReferenceDoes) {
  const Gpt2BpeTokenizer tokenizer({.vocab_file = kFolder + "vocab.json", .merge_file = kFolder + "merges.txt"});
  const auto encoder = tokenizer.make_encoder();
  const std::vector<Case> lines = cases();
  ASSERT_FALSE(lines.empty());
  for (const Case& line : lines) {
    EXPECT_EQ(tokenizer.decode(line.ids), line.decoded);
    if (line.decode_only) continue;
    std::vector<TokenId> ids;
    encoder->append(line.text, ids);
    EXPECT_EQ(tokenizer.encode(line.text), ids) << "without the cache: " << line.text;
    encoder->append(line.pair, ids);
    EXPECT_EQ(ids, line.ids) << line.text << line.pair;
  }
}
}  // namespace
}  // namespace megatron
