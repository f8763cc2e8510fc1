// --async-save: what is stored, when it is visible, and what becomes of it when something fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <thread>

#include "tests/testing/gated_file_system.h"
#include "tests/training/checkpoint/checkpoint_session.h"

namespace megatron::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

/// A run whose data files can be held up.
struct AsyncRun {
  explicit AsyncRun(const std::string& words)
      : trainer(small_config(words), {}), checkpointer(files, trainer.config(), log_to(messages)) {}

  static MessageLog log_to(std::vector<std::string>& lines) {
    return {.on_info = [&](const std::string& line) { lines.push_back(line); },
            .on_warning = [&](const std::string& text) { lines.push_back("warning: " + text); }};
  }
  std::vector<double> train_to(int64_t iteration) { return train(trainer, trainer.progress().iteration, iteration); }
  std::optional<SavedCheckpoint> finish(Wait wait) { return checkpointer.finish_save(trainer.groups().world, wait); }
  /// Iterations that are complete in the folder of --save.
  std::vector<int64_t> complete() {
    return CheckpointDirectory(disk, trainer.config().checkpoint.save.value()).complete();
  }

  PosixFileSystem disk;
  GatedFileSystem files{disk};
  std::vector<std::string> messages;
  Trainer trainer;
  Checkpointer checkpointer;
};

std::map<std::string, std::string> files_in(const std::string& folder) {
  const PosixFileSystem disk;
  std::map<std::string, std::string> all;
  for (const DirectoryEntry& entry : disk.list(folder))
    all[entry.name] = read_file(disk, join_path(folder, entry.name));
  return all;
}

TEST(AsyncSave, WritesTheBytesOfASynchronousSaveOfTheStep) {
  for (const std::string& words : {gpt2_like(), llama_like("--bf16 --use-distributed-optimizer"),
                                   llama_like("--bf16 --use-precision-aware-optimizer --dist-ckpt-workers 3"),
                                   gpt2_like("--optimizer sgd --verify-integrity")}) {
    SCOPED_TRACE(words);
    const ScratchDirectory at_once, later;
    AsyncRun run(words + saving(later, "--async-save"));
    run.train_to(2);
    PretrainConfig config = run.trainer.config();
    config.checkpoint.async_save = false;
    config.checkpoint.save = at_once.path();
    Checkpointer(run.disk, config, {}).save(run.trainer);

    run.files.close_gate();
    EXPECT_THAT(run.checkpointer.save(run.trainer), IsEmpty());
    run.train_to(4);  // changes all that is stored
    run.files.open_gate();
    ASSERT_TRUE(run.finish(Wait::kYes));
    EXPECT_EQ(files_in(later.file("iter_0000002")), files_in(at_once.file("iter_0000002")));
  }
}

TEST(AsyncSave, TrainingGoesOnWhileFilesAreWritten) {
  const ScratchDirectory directory;
  AsyncRun run(gpt2_like(saving(directory, "--async-save"))), whole(gpt2_like());
  std::vector<double> losses = run.train_to(1);
  run.files.close_gate();
  run.checkpointer.save(run.trainer);
  run.files.wait_for_writer();
  for (int64_t iteration = 2; iteration <= 5; ++iteration) {
    EXPECT_FALSE(run.finish(Wait::kNo)) << iteration;
    losses.push_back(run.train_to(iteration).at(0));
  }
  EXPECT_TRUE(run.checkpointer.has_pending_save());
  EXPECT_THAT(run.complete(), IsEmpty());
  EXPECT_EQ(losses, whole.train_to(5)) << "saving changes no bit of training";

  run.files.open_gate();
  std::optional<SavedCheckpoint> saved;
  while (!saved) saved = run.finish(Wait::kNo);
  EXPECT_EQ(saved->iteration, 1);
  EXPECT_FALSE(run.checkpointer.has_pending_save());
  EXPECT_THAT(run.complete(), ElementsAre(1));
  EXPECT_THAT(run.messages,
              ElementsAre(HasSubstr("  scheduled an async checkpoint save at iteration       1 to " + directory.path()),
                          HasSubstr("  successfully saved checkpoint from iteration       1 to " + directory.path()),
                          ::testing::ContainsRegex(
                              "  async save of iteration       1 blocked training for [0-9.]+ s \\([0-9.]+ s to copy, "
                              "[0-9.]+ s to commit\\) of the [0-9.]+ s that it took")));
  Session resumed(gpt2_like(loading(directory)));
  ASSERT_TRUE(resumed.checkpointer.load(resumed.trainer));
  EXPECT_EQ(resumed.train_to(5), std::vector<double>(losses.begin() + 1, losses.end()));
}

TEST(AsyncSave, OwnershipOfTheFolderIsCheckedBeforeASaveAndItsCommitButNotWhileFilesAreWritten) {
  const ScratchDirectory directory;
  AsyncRun run(gpt2_like(saving(directory, "--async-save")));
  int num_checks = 0;
  bool is_owner = true;
  Checkpointer owned(run.files, run.trainer.config(), {}, std::nullopt, [&] {
    ++num_checks;
    require<CheckpointError>(is_owner, "taken over");
  });
  const auto finish = [&](Wait wait) { return owned.finish_save(run.trainer.groups().world, wait); };
  run.train_to(1);
  run.files.close_gate();
  owned.save(run.trainer);
  EXPECT_EQ(num_checks, 1);
  run.files.wait_for_writer();
  for (int64_t iteration = 2; iteration <= 4; ++iteration) {
    EXPECT_FALSE(finish(Wait::kNo)) << iteration;
    run.train_to(iteration);
  }
  EXPECT_EQ(num_checks, 1);
  is_owner = false;
  run.files.open_gate();
  EXPECT_THAT([&] { finish(Wait::kYes); }, ThrowsMessage<CheckpointError>("taken over"));
  EXPECT_EQ(num_checks, 2);
  EXPECT_THAT(run.complete(), IsEmpty());
  EXPECT_THROW(owned.save(run.trainer), CheckpointError);
  EXPECT_FALSE(std::filesystem::exists(directory.file("iter_0000004.saving")));
}

TEST(AsyncSave, TheNextSaveWaitsForThePendingOne) {
  const ScratchDirectory directory;
  AsyncRun run(gpt2_like(saving(directory, "--async-save --save-retain-interval 2")));
  run.train_to(1);
  run.files.close_gate();
  run.checkpointer.save(run.trainer);
  run.train_to(2);
  std::thread disk([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_THAT(run.complete(), IsEmpty());
    run.files.open_gate();
  });
  const std::vector<SavedCheckpoint> committed = run.checkpointer.save(run.trainer);
  disk.join();
  ASSERT_EQ(committed.size(), 1U);
  EXPECT_EQ(committed[0].iteration, 1);
  const auto second = run.finish(Wait::kYes);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->iteration, 2);
  EXPECT_THAT(second->removed, ElementsAre(1)) << "the retention takes effect when the newer one is complete";
  EXPECT_THAT(run.complete(), ElementsAre(2));
}

TEST(AsyncSave, AnErrorInTheBackgroundIsThatOfASynchronousSave) {
  const ScratchDirectory directory;
  const std::string reason = "__0_0.distcp: No space left on device";
  AsyncRun synchronous(gpt2_like(saving(directory)));
  synchronous.train_to(1);
  synchronous.checkpointer.save(synchronous.trainer);

  AsyncRun run(gpt2_like(saving(directory, "--async-save")));
  run.train_to(2);
  synchronous.files.fail(reason);
  synchronous.train_to(2);
  EXPECT_THAT([&] { synchronous.checkpointer.save(synchronous.trainer); }, ThrowsMessage<IoError>(reason));
  run.files.fail(reason);
  run.checkpointer.save(run.trainer);
  const auto train_on = [&] {
    for (int64_t iteration = 3; iteration < 100000; ++iteration) {
      run.finish(Wait::kNo);
      run.train_to(iteration);
    }
  };
  EXPECT_THAT(train_on, ThrowsMessage<IoError>(reason));
  EXPECT_FALSE(run.checkpointer.has_pending_save());
  EXPECT_THAT(run.complete(), ElementsAre(1)) << "the last complete one stays";
}

TEST(AsyncSave, ARunThatEndsEarlyLeavesNoCheckpointAndTheNextRemovesWhatItLeft) {
  const ScratchDirectory directory;
  AsyncRun run(gpt2_like(saving(directory, "--async-save")));
  run.train_to(1);
  run.files.close_gate();
  std::thread disk([&] {
    run.files.wait_for_writer();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    run.files.open_gate();
  });
  {
    Checkpointer dropped(run.files, run.trainer.config(), {});
    dropped.save(run.trainer);
  }
  disk.join();
  EXPECT_THAT(run.complete(), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(directory.file("iter_0000001.saving")));

  AsyncRun next(gpt2_like(saving(directory, "--async-save")));
  next.train_to(2);
  next.checkpointer.save(next.trainer);
  ASSERT_TRUE(next.finish(Wait::kYes));
  EXPECT_THAT(next.messages.front(), HasSubstr("left by an interrupted save"));
  EXPECT_FALSE(std::filesystem::exists(directory.file("iter_0000001.saving")));
  EXPECT_THAT(next.complete(), ElementsAre(2));
}

TEST(AsyncSave, WithoutHostMemoryForItsCopyIsRejectedBeforeTheFirstStep) {
  const ScratchDirectory directory;
  AsyncRun run(gpt2_like(saving(directory, "--async-save")));
  const auto reserve = [&](int64_t available) { run.checkpointer.reserve_staging(run.trainer, available); };
  EXPECT_THAT([&] { reserve(100000); }, ThrowsMessage<OutOfMemory>(::testing::AllOf(
                                            HasSubstr("--async-save copies what this rank stores, 0.5 MiB"),
                                            HasSubstr("and 0.1 MiB are left"), HasSubstr("Leave out --async-save"))));
  reserve(int64_t{1} << 20);
  const int64_t held = run.trainer.device().pinned.total().live;
  EXPECT_GT(held, 400000);
  run.train_to(1);
  run.checkpointer.save(run.trainer);
  ASSERT_TRUE(run.finish(Wait::kYes));
  EXPECT_EQ(run.trainer.device().pinned.total().live, held) << "saves use what was reserved";
}

}  // namespace
}  // namespace megatron::testing
