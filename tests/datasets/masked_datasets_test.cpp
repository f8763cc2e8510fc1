// Masked data sets against the mappings and samples that Megatron gave (tests/golden/data/masked).
#include "megatron/datasets/masked_datasets.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/datasets/masked_dataset_builder.h"
#include "megatron/tokenizers/tokenizer_factory.h"
#include "tests/datasets/golden.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::golden;
using testing::is_error;
using testing::kGoldenData;
using testing::list;

class MaskedDatasetsGolden : public ::testing::Test {
 protected:
  const IndexedDataset sentences_{kGoldenData + "/indexed/sentences", {}};
};

void expect_equal_rows(const json& expected, const std::vector<SampleMappingRow>& rows) {
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i)
    ASSERT_EQ((std::vector<int64_t>{rows[i].first, rows[i].end, rows[i].target_length}), list<int64_t>(expected[i]))
        << "row " << i;
}

WordPieceVocabulary vocabulary_of(const json& file, int64_t num_sentinels) {
  WordPieceVocabulary vocabulary{.cls = 2, .sep = 3, .mask = 4, .pad = 0, .bos = 2, .eos = 3};
  const int64_t size = file["vocab_size"], pieces_from = file["pieces_from"];
  for (int64_t id = 0; id < size; ++id) vocabulary.continues_word.push_back(id >= pieces_from);
  for (int64_t k = 0; k < num_sentinels; ++k) {
    vocabulary.continues_word.push_back(false);
    vocabulary.sentinels.push_back(size + k);
  }
  return vocabulary;
}

MaskedDatasetConfig config_of(const json& config) {
  return {.sequence_length = config["sequence_length"],
          .sequence_length_decoder = config.value("sequence_length_decoder", int64_t{0}),
          .classification_head = config.value("classification_head", true),
          .random_seed = config["random_seed"],
          .short_sequence_probability = config["short_sequence_probability"],
          .masking = {.masking_probability = config["masking_probability"],
                      .masking_max_ngram = config["masking_max_ngram"],
                      .masking_do_full_word = config["masking_do_full_word"],
                      .masking_use_longer_ngrams = config["masking_use_longer_ngrams"],
                      .masking_use_geometric_distribution = config["masking_use_geometric_distribution"]}};
}

/// Calls `compare(expected item, data set)` for the samples of each split.
template <class Dataset, class Compare>
void expect_equal_case(const json& expected, const IndexedDataset& sentences, const WordPieceVocabulary& vocabulary,
                       Compare compare) {
  const char* const splits[] = {"train", "valid", "test"};
  for (size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(splits[i]);
    const json& split = expected[splits[i]];
    const Dataset dataset(sentences, {split["indices"][0], split["indices"][1]}, expected["sizes"][i],
                          config_of(expected["config"]), vocabulary);
    EXPECT_EQ(dataset.size(), split["length"]);
    expect_equal_rows(split["sample_index"], dataset.mapping());
    ASSERT_FALSE(split["items"].empty());
    for (const json& item : split["items"]) {
      SCOPED_TRACE(item["index"].dump());
      compare(item, dataset);
    }
  }
}

TEST_F(MaskedDatasetsGolden, SentencesAreGatheredAsMegatronDoes) {
  const json& mapping = golden("masked/mapping.json");
  for (const auto& [name, expected] : mapping["cases"].items()) {
    if (expected.contains("num_epochs")) continue;  // a number of passes; here it follows from that of samples
    SCOPED_TRACE(name);
    expect_equal_rows(expected["rows"],
                      build_sample_mapping(sentences_, {.documents = {0, sentences_.num_documents()},
                                                        .num_samples = expected["num_samples"],
                                                        .max_length = expected["max_len"],
                                                        .short_sequence_probability = expected["short_prob"],
                                                        .random_seed = expected["seed"],
                                                        .min_sentences = expected["min_sentences"]}));
  }
}

TEST_F(MaskedDatasetsGolden, BertSamplesAreMegatrons) {
  const json& file = golden("masked/bert.json");
  int num_cases = 0;
  for (const auto& [name, expected] : file["cases"].items()) {
    if (is_error(expected) || expected["config"]["masking_do_permutation"]) continue;
    SCOPED_TRACE(name);
    expect_equal_case<BertDataset>(expected, sentences_, vocabulary_of(file, 0),
                                   [](const json& item, const BertDataset& dataset) {
                                     BertSample sample;
                                     dataset.read(item["index"], sample);
                                     EXPECT_EQ(sample.text, list<int64_t>(item["text"]));
                                     EXPECT_EQ(sample.types, list<int64_t>(item["types"]));
                                     EXPECT_EQ(sample.labels, list<int64_t>(item["labels"]));
                                     EXPECT_EQ(sample.padding_mask, list<int64_t>(item["padding_mask"]));
                                     EXPECT_EQ(sample.loss_mask, list<int64_t>(item["loss_mask"]));
                                     EXPECT_EQ(sample.is_random, item["is_random"].get<int>() != 0);
                                     EXPECT_EQ(sample.truncated, item["truncated"].get<int>() != 0);
                                   });
    ++num_cases;
  }
  EXPECT_GE(num_cases, 8);
}

TEST_F(MaskedDatasetsGolden, T5SamplesAreMegatrons) {
  const json& file = golden("masked/t5.json");
  for (const auto& [name, expected] : file["cases"].items()) {
    SCOPED_TRACE(name);
    const int64_t num_sentinels = name == "few_sentinels" ? 2 : file["sentinels"].get<int64_t>();
    expect_equal_case<T5Dataset>(expected, sentences_, vocabulary_of(file, num_sentinels),
                                 [](const json& item, const T5Dataset& dataset) {
                                   T5Sample sample;
                                   if (is_error(item)) {
                                     EXPECT_THROW(dataset.read(item["index"], sample), DataError);
                                     return;
                                   }
                                   dataset.read(item["index"], sample);
                                   EXPECT_EQ(sample.text_enc, list<int64_t>(item["text_enc"]));
                                   EXPECT_EQ(sample.text_dec, list<int64_t>(item["text_dec"]));
                                   EXPECT_EQ(sample.labels, list<int64_t>(item["labels"]));
                                   EXPECT_EQ(sample.loss_mask, list<int64_t>(item["loss_mask"]));
                                   EXPECT_EQ(sample.enc_mask, list<int64_t>(item["enc_mask"]));
                                   EXPECT_EQ(sample.dec_mask, list<int64_t>(item["dec_mask"]));
                                   EXPECT_EQ(sample.truncated, item["truncated"].get<int>() != 0);
                                 });
  }
}

TEST_F(MaskedDatasetsGolden, BuilderSplitsDocumentsAsMegatronDoes) {
  const json& file = golden("masked/bert.json");
  const json& expected = file["cases"]["default"];
  const auto built =
      build_masked_datasets<BertDataset>(kGoldenData + "/indexed/sentences", expected["config"]["split"],
                                         {expected["sizes"][0], expected["sizes"][1], expected["sizes"][2]},
                                         config_of(expected["config"]), vocabulary_of(file, 0));
  for (const Split split : kSplits) {
    SCOPED_TRACE(name_of(split));
    const json& part = expected[std::string(name_of(split))];
    const BertDataset& dataset = *built.parts[index_of(split)];
    expect_equal_rows(part["sample_index"], dataset.mapping());
    for (const json& item : part["items"]) {
      BertSample sample;
      dataset.read(item["index"], sample);
      EXPECT_EQ(sample.text, list<int64_t>(item["text"]));
    }
  }
  const auto train_alone = build_masked_datasets<T5Dataset>(kGoldenData + "/indexed/sentences", "1,0,0", {9, 9, 9},
                                                            {.sequence_length = 40, .sequence_length_decoder = 20},
                                                            vocabulary_of(golden("masked/t5.json"), 30));
  EXPECT_GE(train_alone.parts[0]->size(), 9);
  EXPECT_EQ(train_alone.parts[1], nullptr);
}

TEST(WordPieceVocabularyOf, TakesTheFactsOfBertsTokenizers) {
  const testing::ScratchDirectory scratch;
  std::ofstream(scratch.file("vocab.txt")) << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n##s\n##\n#";
  const auto facts = [&](const std::string& type) {
    return word_piece_vocabulary_of(*make_tokenizer({.type = type, .vocab_file = scratch.file("vocab.txt")}));
  };
  const WordPieceVocabulary lower = facts("BertWordPieceLowerCase");
  EXPECT_EQ((std::vector{lower.pad, lower.cls, lower.sep, lower.mask, lower.bos, lower.eos}),
            (std::vector<int64_t>{0, 2, 3, 4, 2, 3}));
  EXPECT_EQ(lower.continues_word, (std::vector{false, false, false, false, false, false, true, true, false}));
  EXPECT_TRUE(lower.sentinels.empty());
  const WordPieceVocabulary cased = facts("BertWordPieceCase");
  EXPECT_EQ(cased.size(), 109);
  ASSERT_EQ(cased.sentinels.size(), 100);
  EXPECT_EQ(cased.sentinels.front(), 9);
  EXPECT_EQ(cased.sentinels.back(), 108);
  EXPECT_THROW(word_piece_vocabulary_of(*make_tokenizer({.type = "ByteLevelTokenizer"})), ConfigError);
}

TEST_F(MaskedDatasetsGolden, DocumentsWithoutSentencesAndForeignTokensAreErrors) {
  EXPECT_THROW(build_sample_mapping(sentences_, {.documents = {0, 0}, .num_samples = 1, .max_length = 9}), DataError);
  WordPieceVocabulary small{.cls = 2, .sep = 3, .mask = 4};
  small.continues_word.resize(6);
  const BertDataset dataset(sentences_, {0, sentences_.num_documents()}, 4, {.sequence_length = 40}, small);
  BertSample sample;
  EXPECT_THROW(dataset.read(0, sample), DataError);
  EXPECT_THROW(dataset.read(dataset.size(), sample), DataError);
}

}  // namespace
}  // namespace megatron
