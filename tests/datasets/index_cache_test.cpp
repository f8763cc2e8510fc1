#include "megatron/datasets/index_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/datasets/blended_dataset.h"
#include "megatron/datasets/dataset_builder.h"
#include "megatron/datasets/gpt_dataset.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/datasets/mock_token_source.h"
#include "tests/datasets/golden.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using testing::read_bytes;
using testing::ScratchDirectory;
using testing::write_bytes;

/// Keeps what is reported.
struct Messages {
  std::vector<std::string> info, warnings;
  MessageLog log() {
    return {[this](const std::string& text) { info.push_back(text); },
            [this](const std::string& text) { warnings.push_back(text); }};
  }
  bool built() const {
    return std::any_of(info.begin(), info.end(), [](const std::string& text) { return text.starts_with("Build"); });
  }
};

class IndexCache : public ::testing::Test {
 protected:
  GptDatasetConfig config() const {
    return {
        .sequence_length = 1000, .tokenizer = {.vocab_size = 100, .eod = 99}, .path_to_cache = scratch_.file("cache")};
  }
  GptDataset build(Messages& messages, const GptDatasetConfig& config, int64_t num_sequences = 30) const {
    return GptDataset(source_, {.sequences = {0, num_sequences}, .num_samples = 20, .mock = true}, config,
                      messages.log());
  }
  std::filesystem::path file(const std::string& end) const {
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.file("cache"))) {
      if (entry.path().string().ends_with(end)) return entry.path();
    }
    return {};
  }
  static std::vector<int64_t> order(const GptDataset& dataset) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < dataset.size(); ++i) values.push_back(dataset.shuffle_index()[i]);
    for (int64_t i = 0; i < 2 * dataset.size(); ++i) values.push_back(dataset.sample_index()[i]);
    return values;
  }

  const ScratchDirectory scratch_;
  const MockTokenSource source_{{.vocab_size = 100, .eod = 99}};
};

TEST_F(IndexCache, IsWrittenOnceAndTakenAfterwards) {
  Messages first, second;
  const GptDataset built = build(first, config()), taken = build(second, config());
  EXPECT_TRUE(first.built());
  EXPECT_FALSE(second.built());
  EXPECT_EQ(order(built), order(taken));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch_.file("cache")), {}), 4);  // no temporary files
}

TEST_F(IndexCache, IsBuiltAgainWhenDamagedOrIncomplete) {
  Messages ignored;
  const std::vector<int64_t> expected = order(build(ignored, config()));
  for (const char* end : {"document_index.npy", "sample_index.npy", "shuffle_index.npy"}) {
    const std::string good = read_bytes(file(end));
    for (const std::string& bytes : {std::string(), good.substr(0, 50), good.substr(0, good.size() - 1)}) {
      write_bytes(file(end), bytes);
      Messages messages;
      EXPECT_EQ(order(build(messages, config())), expected);
      EXPECT_TRUE(messages.built());
      ASSERT_EQ(messages.warnings.size(), 1u);
      EXPECT_EQ(read_bytes(file(end)), good);
    }
    std::filesystem::remove(file(end));
    Messages messages;
    EXPECT_EQ(order(build(messages, config())), expected);
    EXPECT_TRUE(messages.built());
    EXPECT_TRUE(messages.warnings.empty());
  }
}

TEST_F(IndexCache, IsBuiltAgainWithAWarningForOtherDataOfTheSameName) {
  Messages first, second;
  build(first, config(), 30);
  const GptDataset other = build(second, config(), 25);
  ASSERT_EQ(second.warnings.size(), 1u);
  EXPECT_NE(second.warnings[0].find("has shape (30), but the data gives (25): the data was preprocessed again since"),
            std::string::npos)
      << second.warnings[0];
  EXPECT_EQ(other.document_index().num_elements(), 25);
}

/// Flips a bit of the elements of an .npy file.
std::string with_flipped_bit(std::string bytes, size_t bit) {
  constexpr size_t kHeader = 128;
  bytes[kHeader + bit / 8] = static_cast<char>(bytes[kHeader + bit / 8] ^ (1 << bit % 8));
  return bytes;
}

TEST_F(IndexCache, WithAnyFlippedBitIsBuiltAgain) {
  // Several epochs, of which the final one is shuffled apart; and one.
  std::mt19937 random(7);
  for (const int64_t num_sequences : {7, 30}) {
    Messages ignored;
    const GptDataset expected = build(ignored, config(), num_sequences);
    for (const char* end : {"document_index.npy", "sample_index.npy", "shuffle_index.npy"}) {
      const std::string good = read_bytes(file(end));
      for (int trial = 0; trial < 50; ++trial) {
        const size_t bit = random() % (8 * (good.size() - 128));
        write_bytes(file(end), with_flipped_bit(good, bit));
        Messages messages;
        EXPECT_EQ(order(build(messages, config(), num_sequences)), order(expected)) << end << " bit " << bit;
        EXPECT_EQ(messages.warnings.size(), 1u) << end << " bit " << bit;
        EXPECT_EQ(read_bytes(file(end)), good);
      }
    }
    std::filesystem::remove_all(scratch_.file("cache"));
  }
}

TEST_F(IndexCache, IsReadWithoutACheckByProcessesThatLeaveItToAnotherOfTheirHost) {
  Messages ignored, checked, unchecked;
  const GptDataset expected = build(ignored, config());
  const std::string good = read_bytes(file("shuffle_index.npy")), bad = with_flipped_bit(good, 0);
  write_bytes(file("shuffle_index.npy"), bad);
  GptDatasetConfig other = config();
  other.check_cache = false;
  EXPECT_NE(order(build(unchecked, other)), order(expected));
  EXPECT_EQ(unchecked.warnings.size(), 0u);
  EXPECT_EQ(read_bytes(file("shuffle_index.npy")), bad);
  EXPECT_EQ(order(build(checked, config())), order(expected));
  EXPECT_EQ(checked.warnings.size(), 1u);
}

TEST_F(IndexCache, IsBuiltAgainForOtherDataOfTheSameSize) {
  const auto data_of = [&](const std::vector<size_t>& lengths) {
    IndexedDatasetBuilder builder(scratch_.file("text"), {});
    for (const size_t length : lengths) {
      builder.add_item(std::vector<int64_t>(length, 7));
      builder.end_document();
    }
    builder.finalize();
    return IndexedDataset(scratch_.file("text"), {});
  };
  GptDatasetConfig short_samples = config();
  short_samples.sequence_length = 10;
  const auto sample_starts = [&](const IndexedDataset& data, Messages& messages) {
    const GptDataset dataset(data, {.sequences = {0, 3}, .num_samples = 9}, short_samples, messages.log());
    return order(dataset);
  };
  Messages first, second;
  const std::vector<int64_t> before = sample_starts(data_of({30, 30, 40}), first);
  EXPECT_NE(sample_starts(data_of({40, 30, 30}), second), before);
  ASSERT_EQ(second.warnings.size(), 1u);
  EXPECT_NE(second.warnings[0].find("but by the data at token"), std::string::npos) << second.warnings[0];
}

TEST_F(IndexCache, OverwritingItDuringARunIsAnErrorWithAFix) {
  Messages messages;
  for (const auto& [end, value] : {std::pair<const char*, int32_t>{"document_index.npy", 5000},
                                   {"document_index.npy", -1},
                                   {"sample_index.npy", 100000},
                                   {"sample_index.npy", -5},
                                   {"sample_index.npy", 0},
                                   {"shuffle_index.npy", -1}}) {
    const GptDataset dataset = build(messages, config(), 1500);  // its arrays are large enough to be mapped
    const std::string good = read_bytes(file(end));
    ASSERT_GT(good.size(), NpyArray::kLargestReadBytes);
    {
      std::fstream mapped(file(end), std::ios::binary | std::ios::in | std::ios::out);  // the same file, not a new one
      mapped.seekp(128);
      for (size_t at = 128; at < good.size(); at += 4) mapped.write(reinterpret_cast<const char*>(&value), 4);
    }
    GptSample sample;
    try {
      dataset.read(0, sample);
      ADD_FAILURE() << end << " " << value;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("are damaged or belong to other data. Delete them"), std::string::npos)
          << error.what();
    }
    write_bytes(file(end), good);
  }
}

TEST_F(IndexCache, ADamagedBlendIsAnErrorWithAFix) {
  Messages messages;
  const auto blend = [&] {
    std::vector<std::unique_ptr<MidLevelDataset>> members;
    for (int i = 0; i < 2; ++i) members.push_back(std::make_unique<GptDataset>(build(messages, config())));
    return BlendedDataset(
        std::move(members),
        {.split = Split::kTrain, .weights = {{0.25, 0.75}}, .size = 20, .path_to_cache = scratch_.file("cache")},
        messages.log());
  };
  blend();
  for (const auto& [end, byte] : {std::pair{"dataset_index.npy", '\0'},
                                  {"dataset_index.npy", '\7'},
                                  {"dataset_index.npy", '\xff'},
                                  {"dataset_sample_index.npy", '\0'},
                                  {"dataset_sample_index.npy", '\1'}}) {
    const std::string good = read_bytes(file(end));
    write_bytes(file(end), good.substr(0, 128) + std::string(good.size() - 128, byte));
    try {
      blend();
      ADD_FAILURE() << end << " " << int{byte};
    } catch (const DataError& error) {
      const std::string files = scratch_.file("cache/");
      EXPECT_NE(std::string(error.what()).find("the cached indices " + files), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("Delete them"), std::string::npos) << error.what();
    }
    write_bytes(file(end), good);
  }
  blend();
}

TEST_F(IndexCache, FailingToWriteItGivesOnlyAWarning) {
  write_bytes(scratch_.file("cache"), "a file where the directory should be");
  Messages messages;
  const GptDataset dataset = build(messages, config());
  ASSERT_EQ(messages.warnings.size(), 1u);
  EXPECT_NE(messages.warnings[0].find("--data-cache-path"), std::string::npos) << messages.warnings[0];
  EXPECT_GE(dataset.size(), 20);
}

TEST_F(IndexCache, AReadOnlyDirectoryGivesOnlyAWarning) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write into read-only directories";
  std::filesystem::create_directory(scratch_.file("cache"));
  std::filesystem::permissions(scratch_.file("cache"),
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  Messages messages;
  build(messages, config());
  EXPECT_EQ(messages.warnings.size(), 1u);
  std::filesystem::permissions(scratch_.file("cache"), std::filesystem::perms::owner_all);
}

TEST_F(IndexCache, IsNotWrittenByRanksThatOnlyRead) {
  GptDatasetConfig reader = config();
  reader.write_cache = false;
  Messages messages;
  EXPECT_GE(build(messages, reader).size(), 20);
  EXPECT_FALSE(std::filesystem::exists(scratch_.file("cache")));
}

TEST_F(IndexCache, MayBeMadeByManyRanksAtOnce) {
  std::vector<std::thread> ranks;
  std::vector<std::vector<int64_t>> orders(8);
  for (size_t rank = 0; rank < orders.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      Messages messages;
      orders[rank] = order(build(messages, config()));
      EXPECT_TRUE(messages.warnings.empty()) << messages.warnings[0];
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& one : orders) EXPECT_EQ(one, orders[0]);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch_.file("cache")), {}), 4);
}

TEST_F(IndexCache, HasSeparateEntriesForOptionsThatMegatronsNamesOmit) {
  // The two differ where a sample starts at the border of two documents, so there must be many samples.
  Messages messages;
  GptDatasetConfig with_extra = config(), without_extra = config();
  with_extra.sequence_length = without_extra.sequence_length = 10;
  without_extra.add_extra_token_to_sequence = false;
  const std::vector<int64_t> with = order(build(messages, with_extra));
  EXPECT_NE(order(build(messages, without_extra)), with);
  EXPECT_EQ(order(build(messages, with_extra)), with);
}

TEST_F(IndexCache, IsBesideTheDataUnlessADirectoryIsGiven) {
  IndexedDatasetBuilder builder(scratch_.file("text"), {});
  const std::vector<int64_t> tokens(100, 7);
  builder.add_item(tokens);
  builder.end_document();
  builder.finalize();
  GptDatasetConfig beside = config();
  beside.sequence_length = 10;
  beside.path_to_cache = "";
  const Blend blend = {{scratch_.file("text")}, std::nullopt};
  build_gpt_datasets(beside, {.blend = blend, .split = "1,0,0"}, {5, 0, 0}, {});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch_.file("text/cache/GPTDataset_indices")), {}), 4);
}

}  // namespace
}  // namespace megatron
