// Checkpoint flags that are about several ranks: saving in the background, reading once and broadcasting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "tests/parallel/layout_checkpoint.h"
#include "tests/parallel/layout_run.h"
#include "tests/testing/forwarding_file_system.h"
#include "tests/testing/gated_file_system.h"
#include "tests/testing/scratch_directory.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<Layout> kLayouts = {{"", 3},
                                      {" --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", 4},
                                      {" --use-distributed-optimizer --tensor-model-parallel-size 2", 4},
                                      {" --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather", 3}};
constexpr const char* kSize = " --num-layers 4 --global-batch-size 12 --micro-batch-size 1 --lr 1e-3";

TEST(AsyncCheckpoint, OfAnyLayoutIsWhatASynchronousSaveStores) {
  const std::string words = llama_like(std::string(kSize) + " --bf16");
  for (const Layout& layout : kLayouts) {
    const ScratchDirectory at_once, later;
    continue_to(words + saving(at_once), layout, 2);
    continue_to(words + saving(later) + " --async-save", layout, 2);
    EXPECT_EQ(state_of(words + loading(later)), state_of(words + loading(at_once))) << layout.words;
  }
}

TEST(AsyncCheckpoint, IsCommittedWhenTheSlowestRankHasWritten) {
  const ScratchDirectory directory;
  PosixFileSystem disk;
  GatedFileSystem slow(disk);
  slow.close_gate();
  std::atomic<int> num_steps = 0;
  run_layout(gpt2_like(kSize) + saving(directory) + " --async-save", 3, [&](Trainer& trainer) {
    const ProcessGroup& world = trainer.groups().world;
    FileSystem& files = world.rank() == 1 ? static_cast<FileSystem&>(slow) : disk;
    Checkpointer checkpointer(files, trainer.config(), {});
    train(trainer, 0, 1);
    checkpointer.save(trainer);
    for (int64_t iteration = 1; iteration < 4; ++iteration) {
      require<Error>(!checkpointer.finish_save(world, Wait::kNo), "committed without rank 1");
      train(trainer, iteration, iteration + 1);
      ++num_steps;
    }
    if (world.rank() == 1) slow.open_gate();
    require<Error>(checkpointer.finish_save(world, Wait::kYes).has_value(), "nothing was committed");
  });
  EXPECT_EQ(num_steps, 9);
  EXPECT_THAT(CheckpointDirectory(disk, directory.path()).complete(), ElementsAre(1));
}

TEST(AsyncCheckpoint, AnErrorOfOneRankEndsAllWithIt) {
  const ScratchDirectory directory;
  const std::string words = gpt2_like(kSize);
  continue_to(words + saving(directory), {"", 3}, 1);
  PosixFileSystem disk;
  GatedFileSystem full(disk);
  full.fail("__1_0.distcp: No space left on device");
  const auto run = [&](Trainer& trainer) {
    const ProcessGroup& world = trainer.groups().world;
    FileSystem& files = world.rank() == 1 ? static_cast<FileSystem&>(full) : disk;
    Checkpointer checkpointer(files, trainer.config(), {});
    checkpointer.load(trainer);
    train(trainer, 1, 2);
    checkpointer.save(trainer);
    for (int64_t iteration = 2; iteration < 10000; ++iteration) {
      checkpointer.finish_save(world, Wait::kNo);
      train(trainer, iteration, iteration + 1);
    }
  };
  try {
    run_layout(words + saving(directory) + loading(directory) + " --async-save", 3, run);
    FAIL() << "the save went through";
  } catch (const RankFailure& failure) {
    EXPECT_EQ(failure.rank, 1);
    EXPECT_THAT(failure.what(), HasSubstr("No space left on device"));
  }
  EXPECT_EQ(state_of(words + loading(directory)).iteration, 1);
}

/// Counts the bytes that are read from data files, by all ranks.
class CountedFiles final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  int64_t bytes_read() const { return bytes_; }

  std::unique_ptr<ReadableFile> open_for_reading(const std::string& path) const override {
    auto file = ForwardingFileSystem::open_for_reading(path);
    if (!path.ends_with(".distcp")) return file;
    return std::make_unique<File>(std::move(file), bytes_);
  }

 private:
  class File final : public ReadableFile {
   public:
    File(std::unique_ptr<ReadableFile> file, std::atomic<int64_t>& bytes) : file_(std::move(file)), bytes_(bytes) {}
    int64_t size() const override { return file_->size(); }
    void read(int64_t offset, std::span<std::byte> out) const override {
      bytes_ += std::ssize(out);
      file_->read(offset, out);
    }

   private:
    std::unique_ptr<ReadableFile> file_;
    std::atomic<int64_t>& bytes_;
  };

  mutable std::atomic<int64_t> bytes_ = 0;
};

TEST(ParallelLoad, WithExchangeReadsFromStorageOnceAndLoadsTheSame) {
  for (const Layout& layout : kLayouts) {
    const bool has_shards = layout.words.find("--use-distributed-optimizer") != std::string::npos;
    const std::string words = gpt2_like(std::string(kSize) + (has_shards ? " --bf16" : ""));
    const ScratchDirectory stored;
    continue_to(words + saving(stored), layout, 2);
    const auto bytes_of = [&](const std::string& flag, const ScratchDirectory& again) {
      PosixFileSystem disk;
      CountedFiles files(disk);
      run_layout(words + loading(stored) + saving(again) + flag + layout.words, layout.num_ranks,
                 [&](Trainer& trainer) {
                   Checkpointer checkpointer(files, trainer.config(), {});
                   require<Error>(checkpointer.load(trainer), "nothing was loaded");
                   checkpointer.save(trainer);
                 });
      return files.bytes_read();
    };
    const ScratchDirectory by_all, once;
    const int64_t all_bytes = bytes_of("", by_all), bytes = bytes_of(" --ckpt-fully-parallel-load", once);
    EXPECT_EQ(state_of(words + loading(once)), state_of(words + loading(by_all))) << layout.words;
    const bool is_whole_on_each = layout.num_ranks == 3 && !has_shards;
    EXPECT_LE(bytes, is_whole_on_each ? all_bytes * 2 / 3 : all_bytes) << layout.words;
  }
}

}  // namespace
}  // namespace megatron::testing
