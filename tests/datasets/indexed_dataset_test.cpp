// Reader and writer of .idx and .bin, against the pairs that Megatron wrote (tests/golden/data/indexed).
#include "megatron/datasets/indexed_dataset.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "tests/datasets/golden.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::golden;
using testing::is_error;
using testing::kGoldenData;
using testing::list;
using testing::read_bytes;
using testing::ScratchDirectory;

std::string prefix_of(const std::string& name) { return kGoldenData + "/indexed/" + name; }

/// Names of the pairs that indexed.json describes.
std::vector<std::string> pairs(const json& indexed) {
  std::vector<std::string> names;
  for (const auto& [name, record] : indexed.items()) {
    if (record.is_object() && record.contains("sequences")) names.push_back(name);
  }
  return names;
}

IndexedDataset open(const std::string& name, const json& record, FileAccess access) {
  return IndexedDataset(prefix_of(name), {.access = access, .multimodal = record["multimodal"].get<bool>()});
}

TEST(IndexedDataset, ReadsEveryPairAsMegatronDoes) {
  const json& indexed = golden("indexed/indexed.json");
  const std::vector<std::string> names = pairs(indexed);
  EXPECT_FALSE(names.empty());
  for (const std::string& name : names) {
    for (FileAccess access : {FileAccess::kMap, FileAccess::kPread}) {
      SCOPED_TRACE(name);
      const json& record = indexed[name];
      const IndexedDataset data = open(name, record, access);
      EXPECT_EQ(static_cast<int>(data.token_type()), record["code"]);
      EXPECT_EQ(name_of(data.token_type()), record["dtype"].get<std::string>());
      ASSERT_EQ(data.num_sequences(), record["sequence_count"]);
      ASSERT_EQ(data.num_documents() + 1, static_cast<int64_t>(record["document_indices"].size()));
      for (int64_t i = 0; i < data.num_sequences(); ++i) {
        const auto at = static_cast<size_t>(i);
        EXPECT_EQ(data.sequence_length(i), record["lengths"][at]);
        EXPECT_EQ(data.sequence_pointer(i), record["pointers"][at]);
        EXPECT_EQ(data.sequence_values(i), list<double>(record["sequences"][at]));
        if (record["dtype"].get<std::string>().find("int") != std::string::npos) {
          EXPECT_EQ(data.sequence(i), list<int64_t>(record["sequences"][at]));
        }
        if (data.multimodal()) {
          EXPECT_EQ(data.sequence_mode(i), record["modes"][at]);
        }
      }
      for (int64_t d = 0; d <= data.num_documents(); ++d) {
        EXPECT_EQ(data.document_index(d), record["document_indices"][static_cast<size_t>(d)]);
      }
    }
  }
}

/// Their tokens are compared in samples (gpt_dataset_test.cpp).
TEST(IndexedDataset, ReadsTheIndicesOfTheCorporaOfTheCases) {
  int num_corpora = 0;
  for (const auto& [name, record] : golden("indexed/gpt.json").items()) {
    if (!record.contains("lengths")) continue;
    SCOPED_TRACE(name);
    const IndexedDataset data = open(name, record, FileAccess::kMap);
    ASSERT_EQ(data.num_sequences(), record["sequence_count"]);
    for (int64_t i = 0; i < data.num_sequences(); ++i) {
      EXPECT_EQ(data.sequence_length(i), record["lengths"][static_cast<size_t>(i)]);
      EXPECT_EQ(data.sequence_pointer(i), record["pointers"][static_cast<size_t>(i)]);
    }
    for (int64_t d = 0; d <= data.num_documents(); ++d)
      EXPECT_EQ(data.document_index(d), record["document_indices"][static_cast<size_t>(d)]);
    ++num_corpora;
  }
  EXPECT_GT(num_corpora, 0);
}

TEST(IndexedDataset, ReadsRangesWithinSequencesOnly) {
  const json& indexed = golden("indexed/indexed.json");
  for (const std::string& name : pairs(indexed)) {
    const json& record = indexed[name];
    if (record["dtype"].get<std::string>().find("float") != std::string::npos) continue;
    const IndexedDataset data = open(name, record, FileAccess::kMap);
    for (const json& get : record["get"]) {
      SCOPED_TRACE(name + get.dump());
      const auto sequence = get["i"].get<int64_t>(), offset = get["offset"].get<int64_t>();
      const bool exists = sequence >= 0 && sequence < data.num_sequences();
      const int64_t rest = exists ? data.sequence_length(sequence) - offset : 0;
      const int64_t count = get["length"].is_null() ? rest : get["length"].get<int64_t>();
      std::vector<int64_t> out(static_cast<size_t>(count));
      if (exists && count <= rest) {
        data.read(sequence, offset, out);
        EXPECT_EQ(out, list<int64_t>(data.multimodal() ? get["result"][0] : get["result"]));
      } else {
        // Megatron counts a negative number from the end and reads on into the next sequence; we refuse both.
        EXPECT_THROW(data.read(sequence, offset, out), DataError);
      }
    }
  }
}

TEST(IndexedDataset, OpensDataSetsWithoutTokens) {
  const json& indexed = golden("indexed/indexed.json");
  for (const std::string name : {"empty", "empty_documents"}) {
    for (FileAccess access : {FileAccess::kMap, FileAccess::kPread}) {
      const IndexedDataset data(prefix_of(name), {.access = access});
      EXPECT_EQ(data.num_sequences(), 0);
      EXPECT_EQ(data.num_documents() + 1,
                static_cast<int64_t>(indexed[name]["load_mmap_false"]["document_indices"].size()));
    }
  }
}

/// Writes the documents of `record` anew.
void rebuild(const json& record, const std::string& prefix, bool by_item) {
  const auto type = static_cast<TokenType>(record["code"].get<int>());
  const bool multimodal = record["multimodal"].get<bool>();
  const bool floating = type == TokenType::kFloat32 || type == TokenType::kFloat64;
  IndexedDatasetBuilder builder(prefix, {.token_type = type, .multimodal = multimodal});
  const json& documents = record["document_indices"];
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    std::vector<double> values;
    std::vector<int64_t> tokens;
    std::vector<int32_t> lengths;
    std::vector<int8_t> modes;
    for (size_t i = documents[d]; i < documents[d + 1].get<size_t>(); ++i) {
      const json& sequence = record["sequences"][i];
      const auto mode = static_cast<int8_t>(multimodal ? record["modes"][i].get<int>() : 0);
      if (by_item && floating) builder.add_item(list<double>(sequence), mode);
      if (by_item && !floating) builder.add_item(list<int64_t>(sequence), mode);
      for (const json& token : sequence) {
        floating ? values.push_back(token.get<double>()) : tokens.push_back(token.get<int64_t>());
      }
      lengths.push_back(static_cast<int32_t>(sequence.size()));
      modes.push_back(mode);
    }
    if (by_item) builder.end_document();
    if (!by_item && floating) builder.add_document(values, lengths, modes);
    if (!by_item && !floating) builder.add_document(tokens, lengths, multimodal ? modes : std::vector<int8_t>());
  }
  builder.finalize();
}

TEST(IndexedDatasetBuilder, WritesTheBytesThatMegatronWrites) {
  const ScratchDirectory scratch;
  const json& indexed = golden("indexed/indexed.json");
  for (const std::string& name : pairs(indexed)) {
    for (bool by_item : {false, true}) {
      rebuild(indexed[name], scratch.file(name), by_item);
      for (const char* suffix : {".bin", ".idx"}) {
        EXPECT_EQ(read_bytes(scratch.file(name) + suffix), read_bytes(prefix_of(name) + suffix)) << name << suffix;
      }
    }
  }
}

TEST(IndexedDatasetBuilder, WritesEmptyDataSetsAsMegatronDoes) {
  const ScratchDirectory scratch;
  const std::vector<int64_t> nothing;
  {
    IndexedDatasetBuilder builder(scratch.file("empty"), {.token_type = TokenType::kUInt16});
    builder.finalize();
    IndexedDatasetBuilder documents(scratch.file("empty_documents"), {.token_type = TokenType::kInt32});
    for (int d = 0; d < 3; ++d) documents.add_document(nothing, {});
    documents.finalize();
  }
  for (const std::string name : {"empty", "empty_documents"}) {
    EXPECT_EQ(read_bytes(scratch.file(name) + ".idx"), read_bytes(prefix_of(name) + ".idx"));
    EXPECT_EQ(read_bytes(scratch.file(name) + ".bin"), "");
  }
}

TEST(IndexedDatasetBuilder, MergesAsMegatronDoesAndRejectsOtherTypes) {
  const ScratchDirectory scratch;
  const json& indexed = golden("indexed/indexed.json");
  for (const std::string name : {"u16_merged", "i32_multimodal_merged"}) {
    const json& record = indexed[name];
    IndexedDatasetBuilder builder(scratch.file(name), {.token_type = static_cast<TokenType>(record["code"].get<int>()),
                                                       .multimodal = record["multimodal"].get<bool>()});
    for (const json& part : record["parts"]) builder.add_index(prefix_of(part.get<std::string>()));
    EXPECT_TRUE(is_error(indexed["merge_other_dtype"]));
    if (name == "u16_merged") {
      EXPECT_THROW(builder.add_index(prefix_of("i32_documents")), DataError);
    }
    builder.finalize();
    for (const char* suffix : {".bin", ".idx"}) {
      EXPECT_EQ(read_bytes(scratch.file(name) + suffix), read_bytes(prefix_of(name) + suffix)) << name << suffix;
    }
  }
}

TEST(IndexedDatasetBuilder, RejectsTokensThatDoNotFitTheirType) {
  const ScratchDirectory scratch;
  IndexedDatasetBuilder builder(scratch.file("a"), {.token_type = TokenType::kUInt16});
  const std::vector<int64_t> fitting = {0, 65535}, large = {1, 65536}, negative = {-1};
  const std::vector<double> fraction = {0.5};
  builder.add_item(fitting);
  EXPECT_THROW(builder.add_item(large), DataError);
  EXPECT_THROW(builder.add_item(negative), DataError);
  EXPECT_THROW(builder.add_item(fraction), DataError);
  const std::vector<int32_t> wrong_lengths = {1, 2};
  EXPECT_THROW(builder.add_document(fitting, wrong_lengths), DataError);
}

TEST(IndexedDatasetBuilder, LeavesNothingBehindUnlessFinalized) {
  const ScratchDirectory scratch;
  const std::vector<int64_t> tokens = {1, 2};
  {
    IndexedDatasetBuilder builder(scratch.file("a"), {});
    builder.add_item(tokens);
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  EXPECT_THROW(IndexedDatasetBuilder(scratch.file("missing/a"), {}), IoError);
}

TEST(IndexedFormat, ChoosesTheTypeThatMegatronChooses) {
  for (const auto& [vocab_size, dtype] : golden("indexed/indexed.json")["optimal_dtype"].items()) {
    const auto size = vocab_size == "None" ? std::nullopt : std::optional<int64_t>(std::stoll(vocab_size));
    EXPECT_EQ(name_of(optimal_token_type(size)), dtype.get<std::string>()) << vocab_size;
  }
}

}  // namespace
}  // namespace megatron
