#include "megatron/dist_checkpointing/save_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "megatron/base/error.h"
#include "tests/dist_checkpointing/memory_file_system.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

/// A process of this host that has ended: its id belongs to this process now.
ProcessIdentity ended_process() {
  ProcessIdentity process = own_process();
  process.start_ticks -= 1;
  return process;
}

ProcessIdentity process_elsewhere() {
  ProcessIdentity process = own_process();
  process.host = "node17";
  return process;
}

class SaveLockTest : public ::testing::Test {
 protected:
  SaveLockTest() { files_.create_directories("save"); }
  std::unique_ptr<SaveLock> lock(const SaveLock::Options& options = {}) {
    return std::make_unique<SaveLock>(files_, "save", options);
  }
  /// Leaves the lock of a run of `process` that is killed.
  void leave(const ProcessIdentity& process) {
    MemoryFileSystem scratch;
    scratch.create_directories("save");
    const SaveLock left(scratch, "save", {.process = process});
    replace_file(files_, "save/.save_lock", read_file(scratch, "save/.save_lock"));
  }
  MemoryFileSystem files_;
};

TEST_F(SaveLockTest, IsHeldByOneRunAtATimeAndLeavesNothing) {
  {
    const auto held = lock();
    EXPECT_EQ(held->note(), "");
    EXPECT_NO_THROW(held->require_held());
    EXPECT_THAT([&] { lock(); }, ThrowsMessage<CheckpointError>(AllOf(
                                     HasSubstr("--save save is in use by another run: process " +
                                               std::to_string(::getpid()) + " on host " + host_name()),
                                     HasSubstr("Wait until it has ended"), Not(HasSubstr("--take-over-save-lock")))));
    EXPECT_THROW(lock({.takes_over = true}), CheckpointError) << "of a run that is known to run";
    EXPECT_NO_THROW(held->require_held());
  }
  EXPECT_THAT(files_.list("save"), ::testing::IsEmpty());
  EXPECT_NO_THROW(lock());
}

TEST_F(SaveLockTest, OfAProcessThatHasEndedIsTakenOverAlsoWhereItsIdIsUsedAgain) {
  leave(ended_process());
  {
    const auto held = lock();
    EXPECT_THAT(held->note(), HasSubstr("has ended without removing its lock"));
    EXPECT_NO_THROW(held->require_held());
    EXPECT_EQ(files_.list("save").size(), 1) << "only the lock";
    EXPECT_THROW(lock(), CheckpointError);
  }
  EXPECT_THAT(files_.list("save"), ::testing::IsEmpty());
}

TEST_F(SaveLockTest, OfAnotherHostIsTakenOverOnlyWithTheFlag) {
  leave(process_elsewhere());
  EXPECT_THAT([&] { lock(); }, ThrowsMessage<CheckpointError>(
                                   AllOf(HasSubstr("on host node17"), HasSubstr("add --take-over-save-lock"))));
  const auto held = lock({.takes_over = true});
  EXPECT_THAT(held->note(), AllOf(HasSubstr("node17"), HasSubstr("according to --take-over-save-lock")));
}

TEST_F(SaveLockTest, ThatCannotBeReadIsTakenOverOnlyWithTheFlag) {
  for (const char* content : {"", "{}", "{\"host\": 3", R"({"host": "a", "process_id": 1, "token": "../../x"})"}) {
    replace_file(files_, "save/.save_lock", content);
    EXPECT_THAT([&] { lock(); },
                ThrowsMessage<CheckpointError>(AllOf(HasSubstr("lock file cannot be read (save/.save_lock)"),
                                                     HasSubstr("--take-over-save-lock"))));
    EXPECT_NO_THROW(lock({.takes_over = true})->require_held()) << content;
  }
}

TEST_F(SaveLockTest, ThatAnotherRunHasTakenOverIsNotedAndNotRemoved) {
  auto first = lock({.process = process_elsewhere()});
  const auto second = lock({.takes_over = true});
  EXPECT_THAT(
      [&] { first->require_held(); },
      ThrowsMessage<CheckpointError>(HasSubstr("was taken over from this run: process " + std::to_string(::getpid()))));
  first.reset();
  EXPECT_NO_THROW(second->require_held());
}

TEST_F(SaveLockTest, IsMadeAgainWhereItWasRemoved) {
  const auto held = lock();
  files_.remove("save");
  EXPECT_NO_THROW(held->require_held());
  EXPECT_THROW(lock(), CheckpointError);
}

TEST_F(SaveLockTest, OfRunsThatWereKilledInTheMiddleOfATakeOverIsTakenOver) {
  for (const Fault fault : {Fault::kCrash, Fault::kError}) {
    bool completes = false;
    for (int64_t operation = 0; !completes; ++operation) {
      files_.remove("save");
      files_.create_directories("save");
      for (int former = 0; former < 2; ++former) {  // the second leaves what succeeds the first
        if (former == 0) leave(ended_process());
        files_.fail_at(files_.num_operations() + operation, fault);
        std::unique_ptr<SaveLock> cut_off;
        try {
          cut_off = lock({.process = ended_process()});
          completes = true;
        } catch (const IoError&) {
          completes = false;
        }
        files_.recover(AfterCrash::kEverything);
        if (cut_off) files_.fail_at(files_.num_operations(), Fault::kCrash);  // its destructor does nothing
        cut_off.reset();
        files_.recover(AfterCrash::kEverything);
      }
      {
        const auto next = lock();
        EXPECT_NO_THROW(next->require_held()) << operation;
        EXPECT_THROW(lock(), CheckpointError) << operation;
      }
      EXPECT_NO_THROW(lock()) << operation;
      ASSERT_LT(operation, 100);
    }
  }
}

/// Starts `num_runs` at once. @return how many have got the lock
int num_holders(FileSystem& files, const std::string& directory, int num_runs) {
  std::atomic<int> num_held{0};
  std::barrier start(num_runs), end(num_runs);
  std::vector<std::thread> runs;
  for (int run = 0; run < num_runs; ++run)
    runs.emplace_back([&] {
      std::unique_ptr<SaveLock> held;
      start.arrive_and_wait();
      try {
        held = std::make_unique<SaveLock>(files, directory, SaveLock::Options{});
        held->require_held();
        ++num_held;
      } catch (const CheckpointError&) {  // the others
      }
      end.arrive_and_wait();
    });
  for (std::thread& run : runs) run.join();
  return num_held;
}

TEST_F(SaveLockTest, IsGivenToOneOfManyThatStartAtOnce) {
  const testing::ScratchDirectory scratch;
  PosixFileSystem disk;
  for (int repeat = 0; repeat < 100; ++repeat) {
    EXPECT_EQ(num_holders(files_, "save", 4), 1) << "a free folder";
    leave(ended_process());
    EXPECT_EQ(num_holders(files_, "save", 4), 1) << "a dead lock";
    EXPECT_THAT(files_.list("save"), ::testing::IsEmpty());
  }
  for (int repeat = 0; repeat < 20; ++repeat) {
    EXPECT_EQ(num_holders(disk, scratch.path(), 4), 1) << "a free folder";
    leave(ended_process());
    replace_file(disk, scratch.file(".save_lock"), read_file(files_, "save/.save_lock"));
    EXPECT_EQ(num_holders(disk, scratch.path(), 4), 1) << "a dead lock";
    EXPECT_THAT(disk.list(scratch.path()), ::testing::IsEmpty());
  }
}

}  // namespace
}  // namespace megatron
