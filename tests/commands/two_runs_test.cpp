// Two runs with the same --save, each in its own process.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <thread>

#include "commands/exit_code.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/save_lock.h"
#include "tests/testing/mpirun.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::joined;
using testing::Program;
using testing::ScratchDirectory;
using testing::Words;
using testing::words_of;

/// A run that saves often, and continues until a signal ends it.
Words endless_run(const std::string& folder) {
  return joined({MEGATRON_PROGRAM, "pretrain_gpt", "--save", folder, "--load", folder},
                words_of("--device cpu --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16"
                         " --max-position-embeddings 16 --micro-batch-size 2 --train-iters 1000000 --lr 1e-2"
                         " --mock-data --tokenizer-type NullTokenizer --vocab-size 50 --num-threads 1"
                         " --save-interval 10 --log-interval 1000 --log-progress --exit-signal-handler"));
}

bool has_ended(const Program& program) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(program.process()), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0;
}

/// The iterations whose checkpoints either run reported as saved.
std::vector<int64_t> saved_iterations(const std::string& out) {
  const std::regex line("successfully saved checkpoint from iteration +([0-9]+) to");
  std::vector<int64_t> iterations;
  for (std::sregex_iterator match(out.begin(), out.end(), line), end; match != end; ++match)
    iterations.push_back(std::stoll(match->str(1)));
  return iterations;
}

void expect_whole(const std::string& folder, const std::vector<int64_t>& iterations) {
  const PosixFileSystem files;
  for (const int64_t iteration : iterations) {
    const std::string path = fmt::format("{}/iter_{:07}", folder, iteration);
    EXPECT_NO_THROW(EXPECT_THAT(CheckpointReader(files, path, Verify::kChecksums).verify(), IsEmpty())) << path;
  }
}

/// MEGATRON_RUN_PAIRS; 6 unless it is set.
int num_pairs() {
  const char* text = std::getenv("MEGATRON_RUN_PAIRS");
  return text ? std::atoi(text) : 6;
}

/// The second starts `delay` after the first, with `ranks` ranks. The run that has the folder is ended
/// by `signal` when the other has failed.
void expect_one_to_save(const std::string& folder, std::chrono::milliseconds delay, const std::string& ranks,
                        int signal) {
  const Words words = joined(endless_run(folder), {"--nproc-per-node", ranks, "--micro-batch-size", "1"});
  Program first(words);
  std::this_thread::sleep_for(delay);
  Program second(words);
  while (!has_ended(first) && !has_ended(second)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  Program &refused = has_ended(first) ? first : second, &holder = has_ended(first) ? second : first;
  const pid_t process = holder.process();
  const int status = refused.wait_status();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == static_cast<int>(ExitCode::kCheckpoint)) << status;
  EXPECT_THAT(refused.output(),
              AllOf(HasSubstr("--save " + folder + " is in use by another run: process " + std::to_string(process)),
                    HasSubstr("give this run another folder")));
  EXPECT_THAT(saved_iterations(refused.output()), IsEmpty());

  EXPECT_TRUE(holder.read_until("successfully saved checkpoint")) << holder.output();
  ::kill(process, signal);
  const int end = holder.wait_status();
  EXPECT_TRUE(signal == SIGKILL ? WIFSIGNALED(end) : WIFEXITED(end) && WEXITSTATUS(end) == 0) << holder.output();
  EXPECT_EQ(std::filesystem::exists(folder + "/.save_lock"), signal == SIGKILL);
  expect_whole(folder, saved_iterations(holder.output()));
}

TEST(TwoRunsInOneFolder, OneSavesAndTheOtherNamesTheHolder) {
  for (int pair = 0; pair < num_pairs(); ++pair) {
    SCOPED_TRACE(pair);
    const ScratchDirectory scratch;
    const std::chrono::milliseconds delay(pair % 3 == 0 ? 0 : 17 * pair % 400);
    const std::string ranks = pair % 4 == 3 ? "2" : "1";
    expect_one_to_save(scratch.path(), delay, ranks, SIGKILL);
    // Both find the lock of the run that was killed.
    expect_one_to_save(scratch.path(), delay / 4, ranks, SIGTERM);
  }
}

TEST(TwoRunsInOneFolder, AllRanksOfAJobEndBeforeTheyWriteWhereAnotherRunHasTheFolder) {
  const ScratchDirectory scratch;
  PosixFileSystem files;
  const SaveLock held(files, scratch.path(), {});
  const auto mpi = testing::run_under_mpi(2, endless_run(scratch.path()));
  if (!mpi) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  EXPECT_EQ(mpi->status, static_cast<int>(ExitCode::kCheckpoint)) << mpi->output;
  EXPECT_THAT(mpi->output, HasSubstr("in use by another run: process " + std::to_string(::getpid())));
  EXPECT_EQ(files.list(scratch.path()).size(), 1) << "the lock alone";
}

TEST(TwoRunsInOneFolder, AFolderOfItsOwnForCheckpointsThatAreNotPersistentIsHeldToo) {
  const ScratchDirectory scratch;
  PosixFileSystem files;
  const std::string folder = scratch.file("others");
  files.create_directories(folder);
  const Words words = joined(endless_run(scratch.file("save")),
                             {"--non-persistent-ckpt-type", "global", "--non-persistent-save-interval", "7",
                              "--non-persistent-global-ckpt-dir", folder});
  {
    const SaveLock held(files, folder, {});
    Program refused(words);
    EXPECT_EQ(WEXITSTATUS(refused.wait_status()), static_cast<int>(ExitCode::kCheckpoint));
    EXPECT_THAT(refused.output(),
                HasSubstr("--non-persistent-global-ckpt-dir " + folder + " is in use by another run: process "));
    EXPECT_FALSE(files.exists(scratch.file("save/.save_lock")));
  }
  Program training(words);
  ASSERT_TRUE(training.read_until("iteration      14 to " + folder));
  ::kill(training.process(), SIGTERM);
  EXPECT_EQ(training.wait_status(), 0);
  EXPECT_FALSE(files.exists(folder + "/.save_lock"));
}

TEST(TwoRunsInOneFolder, EachRankHoldsItsOwnFolderOfLocalCheckpoints) {
  const ScratchDirectory scratch;
  PosixFileSystem files;
  const std::string folder = scratch.file("local");
  files.create_directories(folder + "/rank_1");
  const Words words = joined(endless_run(scratch.file("save")),
                             {"--nproc-per-node", "2", "--micro-batch-size", "1", "--non-persistent-ckpt-type", "local",
                              "--non-persistent-save-interval", "7", "--non-persistent-local-ckpt-dir", folder});
  {
    const SaveLock held(files, folder + "/rank_1", {});
    Program refused(words);
    EXPECT_EQ(WEXITSTATUS(refused.wait_status()), static_cast<int>(ExitCode::kCheckpoint));
    EXPECT_THAT(refused.output(),
                HasSubstr("--non-persistent-local-ckpt-dir " + folder + "/rank_1 is in use by another run: process "));
    EXPECT_FALSE(files.exists(scratch.file("save/.save_lock")));
    EXPECT_FALSE(files.exists(folder + "/rank_0/.save_lock"));
  }
  Program training(words);
  ASSERT_TRUE(training.read_until("successfully saved local checkpoint from iteration      14"));
  for (const char* rank : {"rank_0", "rank_1"}) EXPECT_TRUE(files.exists(folder + "/" + rank + "/.save_lock"));
  ::kill(training.process(), SIGTERM);
  EXPECT_EQ(training.wait_status(), 0);
  for (const char* rank : {"rank_0", "rank_1"}) EXPECT_FALSE(files.exists(folder + "/" + rank + "/.save_lock"));
}

TEST(TwoRunsInOneFolder, OneThatOnlyEvaluatesNeedsNoLock) {
  const ScratchDirectory scratch;
  Program training(endless_run(scratch.path()));
  ASSERT_TRUE(training.read_until("successfully saved checkpoint"));
  Program evaluation(joined(endless_run(scratch.path()), words_of("--skip-train --eval-iters 1")));
  EXPECT_EQ(evaluation.wait_status(), 0) << evaluation.output();
  ::kill(training.process(), SIGTERM);
  EXPECT_EQ(training.wait_status(), 0);
}

TEST(TwoRunsInOneFolder, TheNextReportsThatItReplacesAKilledRun) {
  const ScratchDirectory scratch;
  {
    Program killed(endless_run(scratch.path()));
    ASSERT_TRUE(killed.read_until("successfully saved checkpoint"));
  }
  Program next(endless_run(scratch.path()));
  ASSERT_TRUE(next.read_until("successfully saved checkpoint"));
  ::kill(next.process(), SIGTERM);
  EXPECT_EQ(next.wait_status(), 0);
  EXPECT_THAT(next.output(),
              AllOf(HasSubstr("took the place of process "), HasSubstr("which has ended without removing its lock"),
                    HasSubstr("successfully loaded checkpoint")));
}

}  // namespace
}  // namespace megatron
