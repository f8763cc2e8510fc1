// A save that fails or is killed at any operation, on any byte of a file or name, leaves the older checkpoint loadable.
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "tests/dist_checkpointing/memory_file_system.h"
#include "tests/dist_checkpointing/small_checkpoint.h"

namespace megatron {
namespace {

constexpr const char* kRoot = "run/checkpoints";
constexpr AfterCrash kEveryOutcome[] = {AfterCrash::kEverything, AfterCrash::kSyncedOnly,
                                        AfterCrash::kNamesNotContents};

struct Scenario {
  int64_t old_iteration, new_iteration;
  bool prunes;
};

/// Saves the new checkpoint, as a training step does.
void save_new(FileSystem& files, const Scenario& scenario) {
  CheckpointDirectory directory(files, kRoot);
  save_small(files, directory, scenario.new_iteration, 2);
  if (scenario.prunes) directory.prune({.retain_interval = 1000});
}

std::unique_ptr<MemoryFileSystem> with_old_checkpoint(const Scenario& scenario) {
  auto files = std::make_unique<MemoryFileSystem>();
  CheckpointDirectory directory(*files, kRoot);
  save_small(*files, directory, scenario.old_iteration, 1);
  return files;
}

/// Operations of a save that goes well.
std::pair<int64_t, int64_t> operations_of(const Scenario& scenario) {
  const auto files = with_old_checkpoint(scenario);
  const int64_t begin = files->num_operations();
  save_new(*files, scenario);
  return {begin, files->num_operations()};
}

/// The checkpoint found is whole, and it is the old or the new one.
void expect_old_or_new(MemoryFileSystem& files, const Scenario& scenario, const std::string& where) {
  const auto latest = CheckpointDirectory(files, kRoot).latest();
  ASSERT_TRUE(latest.found.has_value()) << where;
  const bool is_old = *latest.found->iteration == scenario.old_iteration;
  if (scenario.old_iteration == scenario.new_iteration) {
    EXPECT_TRUE(holds_small(files, latest.found->path, 1) || holds_small(files, latest.found->path, 2)) << where;
    return;
  }
  EXPECT_TRUE(is_old || *latest.found->iteration == scenario.new_iteration) << where;
  EXPECT_TRUE(holds_small(files, latest.found->path, is_old ? 1 : 2)) << where;
}

/// The next save cleans up, succeeds and is what is loaded then.
void expect_next_save_succeeds(MemoryFileSystem& files, const std::string& where) {
  CheckpointDirectory directory(files, kRoot);
  save_small(files, directory, 30, 3);
  const auto latest = directory.latest();
  ASSERT_TRUE(latest.found.has_value()) << where;
  EXPECT_EQ(latest.found->iteration, 30) << where;
  EXPECT_TRUE(latest.warnings.empty()) << where << ": " << latest.warnings[0];
  EXPECT_TRUE(holds_small(files, latest.found->path, 3)) << where;
  for (const DirectoryEntry& entry : files.list(kRoot))
    EXPECT_TRUE(entry.type == EntryType::kFile || entry.name.find('.') == std::string::npos)
        << where << " leaves " << entry.name;
}

class CrashTest : public ::testing::TestWithParam<Scenario> {};

TEST_P(CrashTest, LeavesAWholeCheckpointWhereverItHappens) {
  const auto [begin, end] = operations_of(GetParam());
  ASSERT_GT(end - begin, 20);
  for (int64_t operation = begin; operation < end; ++operation)
    for (const AfterCrash outcome : kEveryOutcome) {
      const std::string where = fmt::format("operation {}, outcome {}", operation - begin, static_cast<int>(outcome));
      const auto files = with_old_checkpoint(GetParam());
      files->fail_at(operation, Fault::kCrash);
      EXPECT_THROW(save_new(*files, GetParam()), IoError) << where;
      files->recover(outcome);
      expect_old_or_new(*files, GetParam(), where);
      expect_next_save_succeeds(*files, where);
    }
}

TEST_P(CrashTest, AFailedOperationIsReportedAndTheNextAttemptSucceeds) {
  const auto [begin, end] = operations_of(GetParam());
  for (int64_t operation = begin; operation < end; ++operation) {
    const std::string where = fmt::format("operation {}", operation - begin);
    const auto files = with_old_checkpoint(GetParam());
    files->fail_at(operation, Fault::kError);
    EXPECT_THROW(save_new(*files, GetParam()), IoError) << where;
    expect_old_or_new(*files, GetParam(), where);
    expect_next_save_succeeds(*files, where);
  }
}

INSTANTIATE_TEST_SUITE_P(Saves, CrashTest,
                         ::testing::Values(Scenario{10, 20, false}, Scenario{10, 20, true}, Scenario{10, 10, false}),
                         [](const auto& info) {
                           const Scenario& s = info.param;
                           return std::string(s.old_iteration == s.new_iteration ? "Again" : "Next") +
                                  (s.prunes ? "Pruning" : "");
                         });

TEST(CrashTest, OfTheFirstSaveLeavesNothingOrAllOfIt) {
  MemoryFileSystem counted;
  CheckpointDirectory counting(counted, kRoot);
  save_small(counted, counting, 10, 1);
  for (int64_t operation = 0; operation < counted.num_operations(); ++operation)
    for (const AfterCrash outcome : kEveryOutcome) {
      MemoryFileSystem files;
      files.fail_at(operation, Fault::kCrash);
      CheckpointDirectory directory(files, kRoot);
      EXPECT_THROW(save_small(files, directory, 10, 1), IoError);
      files.recover(outcome);
      const auto latest = CheckpointDirectory(files, kRoot).latest();
      const bool whole_or_none = !latest.found || holds_small(files, latest.found->path, 1);
      EXPECT_TRUE(whole_or_none) << operation;
    }
}

}  // namespace
}  // namespace megatron
