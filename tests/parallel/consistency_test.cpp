// Ranks of a launcher that were not given the same flags, files or checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <numeric>

#include "megatron/comm/rank_failure.h"
#include "megatron/comm/threads/rank_threads.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/training/pretrain.h"
#include "megatron/training/training_data.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/words.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Silent final : public Progress {
 public:
  void begin(const ProgressTask&) override {}
  void update(int64_t, std::string_view) override {}
  void end() override {}
  void message(std::string_view) override {}
};

/// Ranks as processes of a launcher would run them, each with words of its own. @return what they say; empty if they
/// train to the end
template <class Error>
std::string failure_of(const std::vector<std::string>& words_of_ranks) {
  const auto num_ranks = static_cast<int>(words_of_ranks.size());
  ThreadWorld ranks(num_ranks, std::chrono::minutes(1));
  const std::atomic<int> signal = 0;
  try {
    run_rank_threads(ranks, [&](World& world) {
      PosixFileSystem files;
      Silent silent;
      const PretrainConfig config = parse_pretrain_gpt(words_of(words_of_ranks[static_cast<size_t>(world.rank())]),
                                                       num_ranks, {}, RuleSet::kMegatron);
      pretrain(config, *tokenizer_of(config.tokenizer),
               {.files = files,
                .progress = silent,
                .signal = signal,
                .signal_name = "SIGTERM",
                .host = "host",
                .world = &world});
    });
  } catch (const RankFailure& failure) {
    EXPECT_THROW(std::rethrow_exception(failure.cause), Error);
    return failure.what();
  }
  return "";
}

std::string failure_of_flags(const std::string& words_of_0, const std::string& words_of_1) {
  const std::string common = "--train-iters 1 --eval-iters 0 --micro-batch-size 1 ";
  return failure_of<ConfigError>({gpt2_like(common + words_of_0), gpt2_like(common + words_of_1)});
}

TEST(ConfigConsistency, RanksWithOtherFlagsAreRefusedWithTheirValuesBeforeTheFirstStep) {
  EXPECT_THAT(failure_of_flags("--seed 77", ""), HasSubstr("--seed is 77 on rank 0, 1234 on rank 1"));
  EXPECT_THAT(failure_of_flags("--lr 1e-3", "--lr 2e-3"), HasSubstr("--lr is 0.001 on rank 0, 0.002 on rank 1"));
  EXPECT_THAT(failure_of_flags("", "--tensor-model-parallel-size 2"),
              HasSubstr("--tensor-model-parallel-size is 1 on rank 0, 2 on rank 1"));
  const std::string both = failure_of_flags("--sequence-parallel --tensor-model-parallel-size 2", "--swiglu");
  EXPECT_THAT(both, HasSubstr("--swiglu is False on rank 0, True on rank 1"));
  EXPECT_THAT(both, HasSubstr("--tensor-model-parallel-size is 2 on rank 0, 1 on rank 1"));
}

TEST(ConfigConsistency, RanksMayHaveFilesAndThreadsOfTheirOwn) {
  const ScratchDirectory directory;
  EXPECT_EQ(failure_of_flags("--seed 1234 --num-threads 1 --log-jsonl " + directory.file("0.jsonl"),
                             "--num-threads 2 --data-cache-path " + directory.file("cache1")),
            "");
}

/// A folder for each of three ranks, as the disks of three hosts.
struct Hosts {
  std::string folder(int rank) const { return directory.file(fmt::format("host{}", rank)); }
  std::string file(int rank, const std::string& name) const { return folder(rank) + "/" + name; }
  /// Returns the command line of rank `rank`, with its folder instead of each "@".
  std::string words(int rank, std::string text) const {
    for (size_t at; (at = text.find('@')) != std::string::npos;) text.replace(at, 1, folder(rank));
    return text;
  }
  std::string failure_with(const std::string& common) const {
    return failure_of<DataError>({words(0, common), words(1, common), words(2, common)});
  }
  ScratchDirectory directory;
};

constexpr int kHosts = 3;
constexpr const char* kModel =
    "--num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 --lr 1e-2 "
    "--micro-batch-size 1 --global-batch-size 3 --train-iters 1 --eval-iters 0 --data-cache-path @/cache ";
constexpr const char* kNull = "--tokenizer-type NullTokenizer --vocab-size 61 ";
constexpr const char* kChars = "--tokenizer-type CharTokenizer --vocab-file @/chars.txt ";
constexpr const char* kData = "--split 9,1,0 --data-path @/text ";

/// 40 documents of 11 to 50 tokens. @param shift  of the tokens. @param longer  the document with one token more
void write_data(const std::string& prefix, int64_t shift, int longer = -1) {
  std::filesystem::create_directories(std::filesystem::path(prefix).parent_path());
  IndexedDatasetBuilder builder(prefix, {.token_type = TokenType::kUInt16});
  for (int document = 0; document < 40; ++document) {
    std::vector<int64_t> tokens(static_cast<size_t>(11 + document + (document == longer)));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = (shift + document + static_cast<int64_t>(i)) % 59;
    builder.add_document(tokens, std::vector<int32_t>{static_cast<int32_t>(tokens.size())});
  }
  builder.finalize();
}

TEST(DataConsistency, EqualFilesInPlacesOfTheirOwnTrain) {
  const Hosts hosts;
  for (int rank = 0; rank < kHosts; ++rank) write_data(hosts.file(rank, "text"), 0);
  EXPECT_EQ(hosts.failure_with(std::string(kModel) + kNull + kData), "");
}

TEST(DataConsistency, OtherTokensOrLengthsOnOneHostAreRefusedWithFileAndRanks) {
  const Hosts hosts;
  for (const int rank : {0, 2}) write_data(hosts.file(rank, "text"), 0);
  write_data(hosts.file(1, "text"), 1);
  const std::string tokens = hosts.failure_with(std::string(kModel) + kNull + kData);
  EXPECT_THAT(tokens, AllOf(HasSubstr(hosts.file(0, "text.bin") + " (2440 bytes, md5 "),
                            HasSubstr(hosts.file(1, "text.bin") + " (2440 bytes, md5 "), HasSubstr(") on rank 1"),
                            HasSubstr("Copy the same files to every host"), Not(HasSubstr("text.idx"))));
  write_data(hosts.file(1, "text"), 0, 7);
  const std::string lengths = hosts.failure_with(std::string(kModel) + kNull + kData);
  EXPECT_THAT(lengths, AllOf(HasSubstr("text.idx"), HasSubstr(hosts.file(1, "text.bin") + " (2442 bytes")));
}

TEST(DataConsistency, AFileThatOneHostLacksIsNamed) {
  const Hosts hosts;
  for (int rank = 0; rank < kHosts; ++rank) write_data(hosts.file(rank, "text"), 0);
  std::filesystem::remove(hosts.file(2, "text.bin"));
  EXPECT_THAT(hosts.failure_with(std::string(kModel) + kNull + kData),
              HasSubstr(hosts.file(2, "text.bin") + " (missing) on rank 2. Copy"));
}

TEST(DataConsistency, AnotherVocabularyIsNamedByItsFileEvenIfItsSizeDiffers) {
  const Hosts hosts;
  std::string characters(61, ' ');
  std::iota(characters.begin(), characters.end(), '0');
  for (const char* of_rank_1 : {"shifted", "longer"}) {
    for (int rank = 0; rank < kHosts; ++rank) {
      write_data(hosts.file(rank, "text"), 0);
      std::string own = characters;
      if (rank == 1 && of_rank_1 == std::string_view("shifted")) std::swap(own[0], own[1]);
      if (rank == 1 && of_rank_1 == std::string_view("longer")) own += '!';
      PosixFileSystem files;
      replace_file(files, hosts.file(rank, "chars.txt"), own);
    }
    EXPECT_THAT(hosts.failure_with(std::string(kModel) + kChars + kData),
                AllOf(HasSubstr(hosts.file(1, "chars.txt")), HasSubstr(") on rank 1"), Not(HasSubstr("vocab_size"))))
        << of_rank_1;
  }
}

TEST(DataConsistency, OtherWeightsOfABlendAreRefused) {
  const Hosts hosts;
  std::vector<std::string> words;
  for (int rank = 0; rank < kHosts; ++rank) {
    write_data(hosts.file(rank, "text"), 0);
    write_data(hosts.file(rank, "more"), 5);
    words.push_back(hosts.words(rank, std::string(kModel) + kNull + "--split 9,1,0 --data-path " +
                                          (rank == 2 ? "7" : "3") + " @/text 3 @/more"));
  }
  EXPECT_THAT(failure_of<DataError>(words), AllOf(HasSubstr("different samples from the same files: training ("),
                                                  HasSubstr(") on rank 2"), HasSubstr("weights")));
  words[2] = words[0];
  words[0] = hosts.words(0, std::string(kModel) + kNull + kData);
  EXPECT_THAT(failure_of<DataError>(words), HasSubstr("2 files on rank 0, 4 files on ranks 1, 2"));
}

TEST(DataConsistency, ACacheOfOtherDataOnOneHostIsRefused) {
  const Hosts hosts;
  for (int rank = 0; rank < kHosts; ++rank) write_data(hosts.file(rank, "text"), 0);
  const std::string train = std::string(kModel) + kNull + kData;
  ASSERT_EQ(hosts.failure_with(train), "");
  for (const auto& entry : std::filesystem::directory_iterator(hosts.file(1, "cache"))) {
    if (!entry.path().string().ends_with("train-shuffle_index.npy")) continue;
    PosixFileSystem files;
    std::string content = read_file(files, entry.path());
    // Another order of the same samples, which no look at one host's files tells from the right one.
    std::swap_ranges(content.end() - 2 * sizeof(uint32_t), content.end() - sizeof(uint32_t),
                     content.end() - sizeof(uint32_t));
    replace_file(files, entry.path(), content);
  }
  EXPECT_THAT(hosts.failure_with(train), AllOf(HasSubstr("different samples"), HasSubstr("remove the caches")));
}

}  // namespace
}  // namespace megatron::testing
