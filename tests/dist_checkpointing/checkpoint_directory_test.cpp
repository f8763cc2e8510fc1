#include "megatron/dist_checkpointing/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "megatron/base/error.h"
#include "tests/dist_checkpointing/memory_file_system.h"
#include "tests/dist_checkpointing/small_checkpoint.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

class CheckpointDirectoryTest : public ::testing::Test {
 protected:
  void save(std::initializer_list<int64_t> iterations) {
    for (const int64_t iteration : iterations) save_small(files_, directory_, iteration, static_cast<int>(iteration));
  }
  void set_tracker(const std::string& content) {
    replace_file(files_, "save/latest_checkpointed_iteration.txt", content);
  }

  MemoryFileSystem files_;
  CheckpointDirectory directory_{files_, "save"};
};

TEST_F(CheckpointDirectoryTest, NamesThingsAsMegatronDoes) {
  save({10, 12345678});
  EXPECT_TRUE(files_.exists("save/iter_0000010/.metadata"));
  EXPECT_TRUE(files_.exists("save/iter_0000010/__0_0.distcp"));
  EXPECT_TRUE(files_.exists("save/iter_0000010/__1_0.distcp"));
  EXPECT_TRUE(files_.exists("save/iter_12345678/.metadata"));
  EXPECT_EQ(read_file(files_, "save/iter_0000010/metadata.json"),
            R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1})");
  EXPECT_EQ(read_file(files_, "save/latest_checkpointed_iteration.txt"), "12345678");
}

TEST_F(CheckpointDirectoryTest, HasNothingAtFirst) {
  const auto latest = directory_.latest();
  EXPECT_FALSE(latest.found.has_value());
  EXPECT_THAT(latest.warnings, IsEmpty());
  EXPECT_THAT(directory_.complete(), IsEmpty());
}

TEST_F(CheckpointDirectoryTest, LoadsWhatTheTrackerNames) {
  save({10, 20, 30});
  EXPECT_EQ(directory_.latest().found->iteration, 30);
  EXPECT_THAT(directory_.latest().warnings, IsEmpty());
  set_tracker(" 20\n");
  const auto latest = directory_.latest();
  EXPECT_EQ(latest.found->iteration, 20);
  EXPECT_THAT(latest.warnings,
              ElementsAre("save/latest_checkpointed_iteration.txt names iteration 20, but iteration 30 is "
                          "complete too. Loading 20; --ckpt-step 30 loads the newer one."));
}

TEST_F(CheckpointDirectoryTest, FallsBackToTheNewestCompleteOneBeforeAndSaysSo) {
  save({10, 20, 30});
  files_.remove("save/iter_0000030/metadata.json");
  auto latest = directory_.latest();
  EXPECT_EQ(latest.found->iteration, 20);
  EXPECT_THAT(latest.warnings,
              ElementsAre("save/latest_checkpointed_iteration.txt names iteration 30, which is not complete. "
                          "Loading iteration 20, the newest complete one before it."));
  set_tracker("15");
  latest = directory_.latest();
  EXPECT_EQ(latest.found->iteration, 10);
  EXPECT_THAT(latest.warnings, ElementsAre(HasSubstr("Loading iteration 10, the newest complete one before it.")));
}

TEST_F(CheckpointDirectoryTest, WithoutATrackerTheNewestCompleteOneIsLoaded) {  // a first save can be cut off there
  save({10, 20});
  set_tracker("");
  EXPECT_EQ(directory_.latest().found->iteration, 20);
  files_.remove("save/latest_checkpointed_iteration.txt");
  const auto latest = directory_.latest();
  EXPECT_EQ(latest.found->iteration, 20);
  EXPECT_THAT(latest.warnings,
              ElementsAre(HasSubstr("is missing or empty. Loading iteration 20, the newest complete")));
}

TEST_F(CheckpointDirectoryTest, RefusesATrackerThatNamesNothingToLoad) {
  save({10, 20});
  const auto expect_refusal = [&](const char* tracker, const char* problem, const char* fix) {
    set_tracker(tracker);
    EXPECT_THAT([&] { directory_.latest(); },
                ThrowsMessage<CheckpointError>(::testing::AllOf(HasSubstr(problem), HasSubstr(fix))))
        << tracker;
  };
  const char* fix = "Complete are: 10, 20. Choose one with --ckpt-step.";
  for (const char* useless : {"abc", "-5", "99999999999999999999", "release"})
    expect_refusal(useless, "which is no complete checkpoint", fix);
  expect_refusal("5", "names iteration 5, which does not exist", fix);
  for (const char* name : {"save/iter_0000010", "save/iter_0000020"}) files_.remove(name);
  expect_refusal("10", "names iteration 10, which does not exist",
                 "save holds no complete checkpoint. Restore one, or give a folder without checkpoints");
}

TEST_F(CheckpointDirectoryTest, WithIncompleteCheckpointsAloneIsNotEmpty) {
  save({10});
  files_.remove("save/iter_0000010/.metadata");
  for (const char* tracker : {"10", ""}) {
    set_tracker(tracker);
    EXPECT_FALSE(directory_.is_empty());
    EXPECT_THAT([&] { directory_.latest(); },
                ThrowsMessage<CheckpointError>(HasSubstr("save holds no complete checkpoint. Restore one")));
  }
}

TEST_F(CheckpointDirectoryTest, IsEmptyAfterAFirstSaveThatWasCutOff) {
  EXPECT_TRUE(directory_.is_empty());
  directory_.begin(10);
  files_.create_directories("save/tensorboard");
  EXPECT_TRUE(directory_.is_empty());
  EXPECT_FALSE(directory_.latest().found.has_value());
}

TEST_F(CheckpointDirectoryTest, ThatIsOneCheckpointNamesTheFolderOfAll) {
  save({10});
  for (const char* path : {"save/iter_0000010", "save/iter_0000010/"})
    EXPECT_THAT([&] { CheckpointDirectory(files_, path).latest(); },
                ThrowsMessage<CheckpointError>("[checkpoint] save/iter_0000010 is one checkpoint. Give the folder that "
                                               "it is in: save --ckpt-step 10"));
}

TEST_F(CheckpointDirectoryTest, SetsAsideWhatIsNotCompleteBeforeItSavesThatIterationAgain) {
  save({10, 20});
  for (const char* aside : {"save/iter_0000020.aside", "save/iter_0000020.aside2"}) {
    files_.remove("save/iter_0000020/metadata.json");
    EXPECT_THAT(directory_.begin(20),
                ElementsAre(::testing::AllOf(HasSubstr("save/iter_0000020 is not complete"), HasSubstr(aside))));
    save({20});
    EXPECT_TRUE(files_.exists(join_path(aside, "__0_0.distcp"))) << aside;
  }
  EXPECT_EQ(directory_.latest().found->iteration, 20);
  EXPECT_THAT(directory_.complete(), ElementsAre(10, 20));
}

TEST_F(CheckpointDirectoryTest, LoadsARelease) {
  save({10});
  files_.rename("save/iter_0000010", "save/release");
  set_tracker("release");
  const auto latest = directory_.latest();
  EXPECT_EQ(latest.found->iteration, std::nullopt);
  EXPECT_TRUE(holds_small(files_, latest.found->path, 10));
}

TEST_F(CheckpointDirectoryTest, FindsAGivenIterationOrListsThoseThereAre) {
  save({10, 20});
  EXPECT_EQ(directory_.find(10).path, "save/iter_0000010");
  EXPECT_THAT(
      [&] { directory_.find(15); },
      ThrowsMessage<CheckpointError>("[checkpoint] iteration 15 in save does not exist. Complete are: 10, 20."));
}

TEST_F(CheckpointDirectoryTest, IgnoresWhatIsNotACheckpoint) {
  save({10});
  files_.create_directories("save/iter_0000020.saving");
  files_.create_directories("save/iter_20");
  files_.create_directories("save/iter_000002x");
  files_.create_directories("save/tensorboard");
  files_.open_for_writing("save/iter_0000030", WriteMode::kTruncate);
  EXPECT_THAT(directory_.complete(), ElementsAre(10));
}

TEST_F(CheckpointDirectoryTest, BeginRemovesLeftoversButNotSavesInProgress) {
  files_.create_directories("save/iter_0000001.saving/deep");
  files_.create_directories("save/iter_0000002.deleting");
  EXPECT_THAT(directory_.begin(10),
              ElementsAre("removed save/iter_0000001.saving, left by an interrupted save or deletion",
                          "removed save/iter_0000002.deleting, left by an interrupted save or "
                          "deletion"));
  EXPECT_THAT(directory_.begin(20), IsEmpty());
  EXPECT_TRUE(files_.exists(directory_.staging_path(10)));
  EXPECT_THAT(directory_.begin(20), IsEmpty()) << "a failed save is begun again";
}

TEST_F(CheckpointDirectoryTest, CommitRefusesAnIncompleteCheckpointAndChangesNothing) {
  save({10});
  directory_.begin(20);
  const float value = 1;
  CheckpointWriter writer(files_, directory_.staging_path(20), 0);
  writer.add_tensor("x", {2}, {0}, {&value, DType::kFloat32, {1}, {1}});
  const CheckpointMetadata stored = writer.write(1);
  EXPECT_THAT([&] { directory_.commit(20, stored, Integrity::kNone); },
              ThrowsMessage<CheckpointError>(HasSubstr("x [2]: the chunks hold 1 of 2 elements")));
  EXPECT_EQ(directory_.latest().found->iteration, 10);
}

TEST_F(CheckpointDirectoryTest, ReplacesACheckpointOfTheSameIteration) {
  save({10});
  save_small(files_, directory_, 10, 77);
  EXPECT_TRUE(holds_small(files_, directory_.latest().found->path, 77));
  EXPECT_EQ(files_.list("save").size(), 2u);
}

TEST_F(CheckpointDirectoryTest, AsksForSpaceBeforeWriting) {
  files_.space_bytes = int64_t{3} << 30;
  EXPECT_NO_THROW(directory_.require_space(int64_t{3} << 30));
  EXPECT_THAT([&] { directory_.require_space(int64_t{4} << 30); },
              ThrowsMessage<CheckpointError>(HasSubstr("save has 3.00 GiB left, the checkpoint needs 4.00 GiB.")));
  files_.space_bytes = 1000;
  EXPECT_THAT([&] { directory_.require_space(5 << 9); },
              ThrowsMessage<CheckpointError>(HasSubstr("save has 1000 bytes left, the checkpoint needs 2.50 KiB.")));
}

TEST_F(CheckpointDirectoryTest, RetainIntervalDropsThePreviousUnlessItIsAMultiple) {
  save({5, 10, 15});
  EXPECT_THAT(directory_.prune({.retain_interval = 10}), IsEmpty()) << "10 is a multiple";
  save({20});
  EXPECT_THAT(directory_.prune({.retain_interval = 10}), ElementsAre(15));
  EXPECT_THAT(directory_.complete(), ElementsAre(5, 10, 20)) << "older ones are not touched";
}

TEST_F(CheckpointDirectoryTest, RetainIntervalDropsWhatAKilledRunCouldNotDrop) {
  const Retention retention{.retain_interval = 10};
  save({3});
  const auto save_and_die = [&](int64_t iteration) {  // between commit and prune
    directory_.mark_for_removal(retention);
    save({iteration});
  };
  save({10, 15});
  save_and_die(20);
  save_and_die(25);
  save_and_die(35);
  EXPECT_THAT(directory_.complete(), ElementsAre(3, 10, 15, 20, 25, 35));
  EXPECT_THAT(directory_.prune({}), IsEmpty()) << "without --save-retain-interval everything stays";
  EXPECT_THAT(CheckpointDirectory(files_, "save").prune(retention), ElementsAre(15, 25));
  EXPECT_THAT(directory_.complete(), ElementsAre(3, 10, 20, 35)) << "3 is of a run that kept all";
}

TEST_F(CheckpointDirectoryTest, RetentionKeepsWhatTheTrackerNames) {
  save({5, 15, 25});
  set_tracker("15");
  EXPECT_THAT(directory_.prune({.retain_interval = 10}), IsEmpty());
  set_tracker("25");
  EXPECT_THAT(directory_.prune({.retain_interval = 10}), ElementsAre(15));
}

TEST(CheckpointDirectory, WorksOnARealFileSystemAndKeepsSymbolicLinks) {
  PosixFileSystem files;
  const std::string root = ::testing::TempDir() + "checkpoint_directory_test_" + std::to_string(::getpid());
  files.remove(root);
  CheckpointDirectory directory(files, root + "/save");
  save_small(files, directory, 10, 1);
  std::filesystem::rename(root + "/save/iter_0000010", root + "/elsewhere");
  std::filesystem::create_symlink(root + "/elsewhere", root + "/save/iter_0000010");
  for (const int64_t iteration : {20, 30}) save_small(files, directory, iteration, static_cast<int>(iteration));
  EXPECT_THAT(directory.prune({.retain_interval = 1000}), ElementsAre(20));
  EXPECT_THAT(directory.complete(), ElementsAre(10, 30));
  EXPECT_TRUE(holds_small(files, directory.find(10).path, 1));
  EXPECT_TRUE(holds_small(files, directory.latest().found->path, 30));

  // A full device: the save fails with the reason, the older checkpoint stays.
  directory.begin(40);
  std::filesystem::create_symlink("/dev/full", directory.staging_path(40) + "/__0_0.distcp");
  const float value = 1;
  CheckpointWriter writer(files, directory.staging_path(40), 0);
  writer.add_tensor("x", {1}, {0}, {&value, DType::kFloat32, {1}, {1}});
  EXPECT_THAT([&] { writer.write(1); }, ThrowsMessage<IoError>(HasSubstr("__0_0.distcp: No space left on device")));
  EXPECT_EQ(directory.latest().found->iteration, 30);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace megatron
