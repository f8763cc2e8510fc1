// Truncated and corrupt files: each gives one DataError that names file, rule and values, and never a crash.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "megatron/base/error.h"
#include "megatron/datasets/gpt_dataset.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "tests/datasets/golden.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using testing::read_bytes;
using testing::ScratchDirectory;
using testing::write_bytes;

struct Files {
  std::string idx, bin;
};

template <class T>
void put(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

struct Damage {
  const char* name;
  std::function<void(Files&)> apply;
  const char* text;  // part of the message
};

// The files hold the documents [1, 2, 3] and [4] as uint16: lengths at 34, pointers at 42, document indices at 58.
constexpr size_t kLengths = 34, kPointers = 42, kDocuments = 58;

const std::vector<Damage>& damages() {
  static const std::vector<Damage> table = {
      {"no bytes", [](Files& f) { f.idx.clear(); }, "has 0 bytes, fewer than the header's 34"},
      {"cut header", [](Files& f) { f.idx.resize(33); }, "has 33 bytes, fewer than the header's 34"},
      {"magic", [](Files& f) { f.idx[0] = 'X'; }, "bad header, cannot read"},
      {"end of magic", [](Files& f) { f.idx[8] = 1; }, "bad header, cannot read"},
      {"version", [](Files& f) { f.idx[9] = 2; }, "bad version, cannot read: version 2, only 1 is known"},
      {"high byte of version", [](Files& f) { f.idx[16] = 1; }, "bad version, cannot read"},
      {"type code 0", [](Files& f) { f.idx[17] = 0; }, "token type code 0 is not one of 1 to 8"},
      {"type code 9", [](Files& f) { f.idx[17] = 9; }, "token type code 9 is not one of 1 to 8"},
      {"cut last index", [](Files& f) { f.idx.resize(f.idx.size() - 8); }, "need more than its 74 bytes"},
      {"one byte short", [](Files& f) { f.idx.pop_back(); },
       "2 sequences and 3 document indices need more than its 81 bytes"},
      {"sequence count beyond the file", [](Files& f) { put(f.idx, 18, uint64_t{1000}); },
       "1000 sequences and 3 document indices need more"},
      {"sequence count that overflows", [](Files& f) { put(f.idx, 18, ~uint64_t{0}); },
       "18446744073709551615 sequences"},
      {"sequence count that wraps to the right size", [](Files& f) { put(f.idx, 18, uint64_t{0x5555555555555557}); },
       "sequences and 3"},
      {"document count beyond the file", [](Files& f) { put(f.idx, 26, uint64_t{1} << 61); },
       "document indices need more"},
      {"no document index", [](Files& f) { put(f.idx, 26, uint64_t{0}); }, "has no document index"},
      {"fewer sequences", [](Files& f) { put(f.idx, 18, uint64_t{1}); }, "document indices run from"},
      {"fewer documents", [](Files& f) { put(f.idx, 26, uint64_t{2}); },
       "document indices run from 0 to 1; they must run from 0 to 2"},
      {"negative length", [](Files& f) { put(f.idx, kLengths, int32_t{-1}); },
       "sequence 0 has length -1 and pointer 0"},
      {"length past the tokens", [](Files& f) { put(f.idx, kLengths + 4, int32_t{2}); },
       "sequence 1 takes bytes 6 to 10 of"},
      {"longest length", [](Files& f) { put(f.idx, kLengths, int32_t{0x7fffffff}); }, "which has only 8"},
      {"negative pointer", [](Files& f) { put(f.idx, kPointers, int64_t{-2}); },
       "sequence 0 has length 3 and pointer -2"},
      {"pointer past the tokens", [](Files& f) { put(f.idx, kPointers + 8, int64_t{8}); },
       "sequence 1 takes bytes 8 to 10 of"},
      {"largest pointer", [](Files& f) { put(f.idx, kPointers, INT64_MAX); }, "which has only 8"},
      {"first document", [](Files& f) { put(f.idx, kDocuments, int64_t{1}); }, "document indices run from 1 to 2"},
      {"documents out of order", [](Files& f) { put(f.idx, kDocuments + 8, int64_t{3}); },
       "document 1 starts at sequence 3, the next one before it at 2"},
      {"document before the first", [](Files& f) { put(f.idx, kDocuments + 8, int64_t{-1}); },
       "document 0 starts at sequence 0, the next one before it at -1"},
      {"gap before a sequence",
       [](Files& f) {
         put(f.idx, kPointers + 8, int64_t{8});
         f.bin += "xx";
       },
       "sequence 1 starts at byte 8 of"},
      {"sequence that overlaps the one before it", [](Files& f) { put(f.idx, kPointers + 8, int64_t{4}); },
       "but the one before it ends at byte 6 (tokens are uint16)"},
      {"first sequence that is not at the start", [](Files& f) { put(f.idx, kPointers, int64_t{2}); },
       "sequence 0 starts at byte 2 of"},
      {"shorter length", [](Files& f) { put(f.idx, kLengths, int32_t{2}); }, "the one before it ends at byte 4"},
      {"type of other tokens", [](Files& f) { f.idx[17] = 1; }, "ends at byte 3 (tokens are uint8)"},
      {"shorter last length", [](Files& f) { put(f.idx, kLengths + 4, int32_t{0}); },
       "its 2 sequences take 6 bytes (tokens are uint16), but"},
      {"longer tokens", [](Files& f) { f.bin += "xx"; }, "data.bin has 10. One of the two files is damaged"},
      {"bytes behind the index", [](Files& f) { f.idx += "xxx"; },
       "has 85 bytes, but 2 sequences and 3 document indices take 82, or 84 with modes"},
      {"no tokens", [](Files& f) { f.bin.clear(); }, "sequence 0 takes bytes 0 to 6 of"},
      {"tokens cut by a byte", [](Files& f) { f.bin.pop_back(); }, "which has only 7"},
      {"other data's tokens", [](Files& f) { f.bin.resize(2); }, "copy both again or preprocess the data again"},
  };
  return table;
}

class DamagedFiles : public ::testing::Test {
 protected:
  DamagedFiles() {
    const std::vector<int64_t> first = {1, 2, 3}, second = {4};
    IndexedDatasetBuilder builder(prefix_, {.token_type = TokenType::kUInt16});
    builder.add_item(first);
    builder.end_document();
    builder.add_item(second);
    builder.end_document();
    builder.finalize();
    good_ = {read_bytes(prefix_ + ".idx"), read_bytes(prefix_ + ".bin")};
  }

  void write(const Files& files) const {
    write_bytes(prefix_ + ".idx", files.idx);
    write_bytes(prefix_ + ".bin", files.bin);
  }

  const ScratchDirectory scratch_;
  const std::string prefix_ = scratch_.file("data");
  Files good_;
};

TEST_F(DamagedFiles, GiveOneErrorThatNamesFileRuleAndValues) {
  ASSERT_EQ(good_.idx.size(), 82u);
  for (const Damage& damage : damages()) {
    for (FileAccess access : {FileAccess::kMap, FileAccess::kPread}) {
      SCOPED_TRACE(damage.name);
      Files files = good_;
      damage.apply(files);
      write(files);
      try {
        IndexedDataset(prefix_, {.access = access});
        ADD_FAILURE() << "was accepted";
      } catch (const DataError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find(damage.text), std::string::npos) << text;
        EXPECT_TRUE(text.starts_with(prefix_ + ".idx")) << text;
      }
    }
  }
}

TEST_F(DamagedFiles, AnyByteOfTheIndexMayBeWrongWithoutACrash) {
  for (size_t at = 0; at < good_.idx.size(); ++at) {
    for (int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      Files files = good_;
      files.idx[at] = static_cast<char>(value);
      write(files);
      try {
        const IndexedDataset data(prefix_, {});
        for (int64_t i = 0; i < data.num_sequences(); ++i) data.sequence(i);
      } catch (const DataError&) {
      }
    }
  }
}

TEST_F(DamagedFiles, AnyLengthOfTheFilesIsHandled) {
  for (size_t size = 0; size < good_.idx.size(); ++size) {
    write({good_.idx.substr(0, size), good_.bin});
    EXPECT_THROW(IndexedDataset(prefix_, {}), DataError) << size;
  }
  for (size_t size = 0; size < good_.bin.size(); ++size) {
    write({good_.idx, good_.bin.substr(0, size)});
    EXPECT_THROW(IndexedDataset(prefix_, {}), DataError) << size;
  }
}

TEST_F(DamagedFiles, ModesAfterAnIndexAreNotDamage) {
  write({good_.idx + std::string(2, '\0'), good_.bin});  // one byte a sequence
  const IndexedDataset data(prefix_, {});
  EXPECT_EQ(data.sequence(0), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(data.sequence(1), (std::vector<int64_t>{4}));
}

/// Reads the data as training of a GPT does: all sequences, in order.
std::vector<std::vector<int64_t>> sequences_of(const IndexedDataset& data) {
  std::vector<std::vector<int64_t>> sequences;
  for (int64_t i = 0; i < data.num_sequences(); ++i) sequences.push_back(data.sequence(i));
  return sequences;
}

TEST_F(DamagedFiles, NoFlippedBitOfAnIndexTrainsOnOtherTokens) {
  std::mt19937 random(7);
  const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
  for (const TokenType type : {TokenType::kUInt8, TokenType::kInt16, TokenType::kUInt16, TokenType::kInt32}) {
    const std::string prefix = scratch_.file("random");
    {
      IndexedDatasetBuilder builder(prefix, {.token_type = type});
      for (int document = 0; document < 40; ++document) {
        for (size_t sequence = below(4); sequence > 0; --sequence) {
          std::vector<int64_t> tokens(below(30));
          for (int64_t& token : tokens) token = static_cast<int64_t>(below(100));
          builder.add_item(tokens);
        }
        builder.end_document();
      }
      builder.finalize();
    }
    const std::string good = read_bytes(prefix + ".idx");
    const auto expected = sequences_of(IndexedDataset(prefix, {}));
    const size_t documents_at = kIndexHeaderBytes + 12 * expected.size();
    for (int trial = 0; trial < 300; ++trial) {
      const size_t bit = below(8 * good.size());
      std::string bytes = good;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      write_bytes(prefix + ".idx", bytes);
      try {
        const IndexedDataset data(prefix, {});
        // The start of a document may move between its neighbours, which no sample depends on.
        EXPECT_GE(bit / 8, documents_at + 8) << "bit " << bit;
        EXPECT_EQ(sequences_of(data), expected) << "bit " << bit;
      } catch (const DataError&) {
      }
    }
  }
}

TEST_F(DamagedFiles, ModesThatAreMissingAreAnError) {
  EXPECT_THROW(IndexedDataset(prefix_, {.multimodal = true}), DataError);
}

TEST_F(DamagedFiles, AMissingFileIsNamed) {
  std::filesystem::remove(prefix_ + ".bin");
  try {
    IndexedDataset(prefix_, {});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with(prefix_ + ".bin: no such file.")) << error.what();
  }
  EXPECT_THROW(IndexedDataset(scratch_.path(), {}), DataError);
}

TEST_F(DamagedFiles, AnInaccessiblePathIsNamed) {
  const std::string prefix = scratch_.file(std::string(300, 'x'));
  try {
    IndexedDataset(prefix, {});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with(prefix + ".idx: File name too long.")) << error.what();
  }
}

TEST_F(DamagedFiles, ATokenOutsideOfTheVocabularyIsNamedWithItsPlace) {
  write(good_);
  const IndexedDataset data(prefix_, {});
  GptDatasetConfig config = {.sequence_length = 3, .tokenizer = {.vocab_size = 4}, .path_to_cache = scratch_.path()};
  const GptDataset dataset(data, {.sequences = {0, 2}, .num_samples = 1}, config, {});
  GptSample sample;
  try {
    dataset.read(0, sample);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_EQ(std::string(error.what()),
              prefix_ +
                  ".bin: byte 6, position 0 of document 1 (position 0 of sequence 1): token 4 is not in the vocabulary "
                  "of 4 tokens. Train with the tokenizer that the data was made with, or preprocess the data again; "
                  "`megatron data check` reads a whole file.");
  }
}

TEST_F(DamagedFiles, ATokenOutsideOfTheVocabularyIsFoundWhereItIsOnlyALabelToo) {
  IndexedDatasetBuilder builder(scratch_.file("labels"), {.token_type = TokenType::kUInt16});
  builder.add_item(std::vector<int64_t>{1, 2, 3, 6});
  builder.end_document();
  builder.finalize();
  const IndexedDataset data(scratch_.file("labels"), {});
  const auto read_below = [&](int64_t limit) {
    GptDatasetConfig config = {
        .sequence_length = 3, .tokenizer = {.vocab_size = limit}, .path_to_cache = scratch_.path()};
    GptSample sample;
    GptDataset(data, {.sequences = {0, 1}, .num_samples = 1}, config, {}).read(0, sample);
    return sample.labels;
  };
  EXPECT_EQ(read_below(7), (std::vector<int64_t>{2, 3, 6}));
  EXPECT_THROW(read_below(6), DataError);
}

TEST_F(DamagedFiles, NanTokensDoNotCrash) {
  IndexedDatasetBuilder builder(scratch_.file("floats"), {.token_type = TokenType::kFloat64});
  const std::vector<double> values = {1.5, 1e300, -1e300, std::nan("")};
  builder.add_item(values);
  builder.end_document();
  builder.finalize();
  const IndexedDataset data(scratch_.file("floats"), {});
  EXPECT_EQ(data.sequence(0), (std::vector<int64_t>{1, INT64_MAX, INT64_MIN, 0}));
}

}  // namespace
}  // namespace megatron
