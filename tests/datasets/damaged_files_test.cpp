// Truncated and corrupt files: each gives one DataError that names file, rule and values, and never a crash.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

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

TEST_F(DamagedFiles, BytesBehindTheDataAreIgnoredAsInMegatron) {
  write({good_.idx + std::string(5, '\0'), good_.bin + "xx"});
  const IndexedDataset data(prefix_, {});
  EXPECT_EQ(data.sequence(0), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(data.sequence(1), (std::vector<int64_t>{4}));
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

TEST_F(DamagedFiles, APathThatCannotBeLookedAtIsNamed) {
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
                  ": token 4 at position 0 of sequence 1 is not in the vocabulary of 4 tokens. "
                  "Train with the tokenizer that the data was made with, or preprocess the "
                  "data again.");
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

TEST_F(DamagedFiles, TokensThatAreNoNumbersDoNotCrash) {
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
