// Answers of Hugging Face's tokenizers 0.23.3, from tests/golden/tokenizers/hf and parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "megatron/tokenizers/hugging_face/normalizers.h"
#include "megatron/tokenizers/hugging_face/pre_tokenizers.h"
#include "megatron/tokenizers/hugging_face/tokenizer_json.h"
#include "tests/testing/source_tree.h"
#include "tests/tokenizers/golden_rows.h"

namespace megatron {
namespace {
using hugging_face::Piece;
using hugging_face::TextPipeline;
using hugging_face::TokenizerJson;
using Json = testing::JsonRow;
using testing::for_each_row;
using testing::has;
using testing::ids_of;
using testing::text_of;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Row {
 public:
  explicit Row(Json row) : row_(row) {}
  bool is_decode_only() const { return has(row_, "decode_only"); }
  bool is_pair() const { return has(row_, "pair"); }
  std::string text() const { return is_decode_only() ? "" : text_of(row_, "text"); }
  std::vector<TokenId> ids() const { return ids_of(row_, "ids"); }
  std::vector<TokenId> plain_ids() const { return has(row_, "plain") ? ids_of(row_, "plain") : ids(); }
  std::string decoded() const { return has(row_, "decoded") ? text_of(row_, "decoded") : text(); }
  std::string decoded_without_special() const {
    if (!has(row_, "decoded_skip")) return decoded();
    return row_["decoded_skip"].is_null() ? text() : text_of(row_, "decoded_skip");
  }

 private:
  Json row_;
};

/// Counts texts whose answers differ for their Unicode version: the reference's tables are those of Unicode 8 to 16,
/// ours of 14 (PCRE2) and 15 (utf8proc). Characters that were assigned in between are mostly outside of the first
/// plane.
class UnicodeVersions {
 public:
  ~UnicodeVersions() { EXPECT_LE(num_different_, 1 + num_texts_ / 100); }
  /// Says whether `same` is right, or may be wrong for this text.
  bool allow(const std::string& text, bool same) {
    ++num_texts_;
    if (same) return true;
    ++num_different_;
    return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0xF0; });
  }

 private:
  int64_t num_texts_ = 0, num_different_ = 0;
};

class HuggingFaceGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(HuggingFaceGolden, IdsAndTextAreThoseOfTheReference) {
  const std::string stem = testing::golden_path("tokenizers/hf/" + GetParam());
  const TokenizerJson tokenizer(content_of(stem + ".json"), GetParam() + ".json", {});
  TextPipeline remembering(tokenizer);
  UnicodeVersions versions;
  for_each_row(stem + ".jsonl", [&](Json json) {
    const Row row(json);
    if (row.is_pair()) return;
    EXPECT_EQ(tokenizer.decode(row.ids(), false), row.decoded());
    EXPECT_EQ(tokenizer.decode(row.ids(), true), row.decoded_without_special());
    if (row.is_decode_only()) return;
    std::vector<TokenId> ids;
    remembering.append(row.text(), ids);
    if (versions.allow(row.text(), ids == row.plain_ids()) && ids != row.plain_ids()) return;
    EXPECT_EQ(ids, row.plain_ids()) << ::testing::PrintToString(row.text());
    std::vector<TokenId> fresh_ids, framed = tokenizer.frame().prefix;
    TextPipeline(tokenizer).append(row.text(), fresh_ids);
    EXPECT_EQ(fresh_ids, ids) << "without the words seen before: " << ::testing::PrintToString(row.text());
    framed.insert(framed.end(), ids.begin(), ids.end());
    framed.insert(framed.end(), tokenizer.frame().suffix.begin(), tokenizer.frame().suffix.end());
    EXPECT_EQ(framed, row.ids()) << ::testing::PrintToString(row.text());
  });
}

INSTANTIATE_TEST_SUITE_P(All, HuggingFaceGolden,
                         ::testing::Values("added_torture", "bpe_continuing_prefix", "bpe_end_of_word", "deepseek",
                                           "gpt2", "llama2_metaspace_first", "llama2_metaspace_never_nofuse",
                                           "llama2_normalizer", "llama3", "o200k", "qwen2", "roberta", "unigram",
                                           "unigram_byte_fallback", "unigram_precompiled", "wordlevel",
                                           "wordpiece_cased", "wordpiece_uncased"),
                         [](const auto& info) { return info.param; });

TEST(HuggingFacePartsGolden, EachNormalizerGivesTheTextOfTheReference) {
  for_each_row(testing::golden_path("tokenizers/parts/normalizers.jsonl"), [](Json row) {
    const std::string config = simdjson::minify(row["config"]);
    const auto normalizer = hugging_face::make_normalizer(row["config"].value(), config);
    for (const Json one : row["cases"].get_array()) {
      hugging_face::NormalizedText text{std::string(one.at(0).get_string().value()), true};
      const std::string given = text.text;
      normalizer->normalize(text);
      EXPECT_EQ(text.text, one.at(1).get_string().value()) << config << " " << ::testing::PrintToString(given);
    }
  });
}

std::vector<std::string> pieces_of(const std::vector<std::unique_ptr<hugging_face::PreTokenizer>>& steps, Piece piece,
                                   size_t step = 0) {
  if (step == steps.size()) return {std::string(piece.text)};
  std::vector<std::string> pieces;
  hugging_face::SplitScratch scratch;
  steps[step]->split(piece, scratch, [&](Piece part) {
    if (part.text.empty()) return;
    const std::vector<std::string> rest = pieces_of(steps, part, step + 1);
    pieces.insert(pieces.end(), rest.begin(), rest.end());
  });
  return pieces;
}

TEST(HuggingFacePartsGolden, EachPreTokenizerGivesThePiecesOfTheReference) {
  UnicodeVersions versions;
  for_each_row(testing::golden_path("tokenizers/parts/pre_tokenizers.jsonl"), [&](Json row) {
    const std::string config = simdjson::minify(row["config"]);
    const auto steps = hugging_face::make_pre_tokenizers(row["config"].value(), config);
    for (const Json one : row["cases"].get_array()) {
      const std::string text(one.at(0).get_string().value());
      std::vector<std::string> expected;
      for (const Json piece : one.at(1).get_array()) expected.emplace_back(piece.at(0).get_string().value());
      std::erase(expected, "");
      const auto pieces = text.empty() ? std::vector<std::string>() : pieces_of(steps, {text, true});
      if (versions.allow(text, pieces == expected)) continue;
      EXPECT_EQ(pieces, expected) << config << " " << ::testing::PrintToString(text);
    }
  });
}

}  // namespace
}  // namespace megatron
