// Answers of tiktoken 0.14.0 and of Megatron Core's TikTokenTokenizer, from tests/golden/tokenizers/tiktoken.
#include <gtest/gtest.h>

#include <string>

#include "megatron/tokenizers/tiktoken_encoding.h"
#include "megatron/tokenizers/tiktoken_tokenizer.h"
#include "megatron/tokenizers/tiktoken_vocabulary.h"
#include "megatron/tokenizers/utf8.h"
#include "tests/testing/source_tree.h"
#include "tests/tokenizers/golden_rows.h"

namespace megatron {
namespace {
using Json = testing::JsonRow;
using testing::for_each_row;
using testing::has;
using testing::ids_of;
using testing::text_of;

std::string path_of(const std::string& name) { return testing::golden_path("tokenizers/tiktoken/" + name); }

std::string decoded_of(Json row) { return text_of(row, "decoded", "text"); }

class TiktokenGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(TiktokenGolden, IdsAndTextAreThoseOfTiktoken) {
  simdjson::dom::parser parser;
  const Json about = parser.load(path_of(GetParam() + ".json")).value();
  TiktokenEncoding::Options options{.pattern = text_of(about, "pattern"),
                                    .tokens = read_tiktoken_vocabulary(path_of(text_of(about, "ranks_file"))).tokens};
  for (const auto& [token, id] : about["special_tokens"].get_object())
    options.special_tokens.emplace_back(token, static_cast<TokenId>(int64_t{id}));
  const TiktokenEncoding encoding(options);
  const auto encoder = encoding.make_encoder();
  for_each_row(path_of(GetParam() + ".jsonl"), [&](Json row) {
    if (has(row, "bytes")) return;  // no UTF-8: refused
    std::vector<TokenId> ids;
    if (!has(row, "decode_only")) {
      encoder->append(text_of(row, "text"), ids);
      EXPECT_EQ(ids, ids_of(row, "ids")) << ::testing::PrintToString(text_of(row, "text"));
    }
    std::string bytes;
    for (const TokenId id : ids_of(row, "ids")) bytes += *encoding.bytes_of(id);
    EXPECT_EQ(replace_invalid_utf8(bytes), decoded_of(row));
  });
}

INSTANTIATE_TEST_SUITE_P(All, TiktokenGolden, ::testing::Values("r50k", "cl100k", "o200k"),
                         [](const auto& info) { return info.param; });

class MegatronTiktokenGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(MegatronTiktokenGolden, IdsAreThoseOfMegatron) {
  std::unique_ptr<Tokenizer> tokenizer;
  for_each_row(path_of(GetParam() + ".jsonl"), [&](Json row) {
    if (!tokenizer) {  // the first line has the settings
      tokenizer = std::make_unique<TiktokenTokenizer>(
          TiktokenTokenizer::Options{.path = path_of("megatron.json"),
                                     .pattern = text_of(row, "pattern"),
                                     .vocab_size = int64_t{row["vocab_size"]},
                                     .num_special_tokens = int64_t{row["num_special_tokens"]}});
      EXPECT_EQ(tokenizer->eod(), int64_t{row["eos"]});
      EXPECT_EQ(tokenizer->pad(), int64_t{row["pad"]});
      return;
    }
    const std::vector<TokenId> ids = tokenizer->encode(text_of(row, "text"));
    EXPECT_EQ(ids, ids_of(row, "ids")) << ::testing::PrintToString(text_of(row, "text"));
    std::string decoded;  // Megatron decodes each token by itself, which breaks characters of several tokens
    for (const TokenId id : ids) decoded += tokenizer->decode(std::vector<TokenId>{id});
    EXPECT_EQ(decoded, decoded_of(row));
    EXPECT_EQ(tokenizer->decode(ids), text_of(row, "text"));
  });
}

INSTANTIATE_TEST_SUITE_P(All, MegatronTiktokenGolden,
                         ::testing::Values("megatron_v1_13", "megatron_v1_1000", "megatron_v2_13", "megatron_v2_1000"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace megatron
