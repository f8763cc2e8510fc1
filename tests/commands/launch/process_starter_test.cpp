// Ranks as processes that one command starts; here they are shells.
#include "commands/launch/process_starter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "megatron/base/error.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Outcome {
  int status;
  std::string errors;
  std::chrono::duration<double> time;
};

/// `script` is a shell's; $RANK is the rank.
Outcome run(const std::string& script, int count = 3) {
  std::ostringstream errors;
  const auto begin = std::chrono::steady_clock::now();
  const int status = run_processes({{"/bin/sh", "-c", script}, count, 1234, "job"}, "test", errors);
  return {status, errors.str(), std::chrono::steady_clock::now() - begin};
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ProcessStarter, EachProcessGetsTorchrunsVariables) {
  const testing::ScratchDirectory directory;
  setenv("RANK", "99", 1);  // an outer launcher's: replaced
  const Outcome outcome =
      run("echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT "
          "$TORCHELASTIC_USE_AGENT_STORE $TORCHELASTIC_RUN_ID ${PATH:+path} > " +
          directory.file("$RANK"));
  unsetenv("RANK");
  EXPECT_EQ(outcome.status, 0);
  for (const char* rank : {"0", "1", "2"})
    EXPECT_EQ(text_of(directory.file(rank)), std::string(rank) + " 3 " + rank + " 3 127.0.0.1 1234 True job path\n");
}

TEST(ProcessStarter, ReturnsTheStatusOfTheRankThatFailed) {
  EXPECT_EQ(run("[ $RANK = 1 ] && exit 3; exit 0").status, 3);
}

TEST(ProcessStarter, ALostPeerDoesNotHideTheFirstFailure) {
  EXPECT_EQ(run("[ $RANK = 1 ] && { sleep 0.4; exit 3; }; exit 7").status, 3);
  EXPECT_EQ(run("[ $RANK = 1 ] && exit 3; sleep 0.4; exit 7").status, 3);
}

TEST(ProcessStarter, AKilledRankIsReported) {
  const Outcome outcome = run("[ $RANK = 2 ] && kill -9 $$; sleep 0.2; exit 7");
  EXPECT_EQ(outcome.status, 128 + SIGKILL);
  EXPECT_EQ(outcome.errors, "megatron test: rank 2 was ended by signal 9 (Killed)\n");
}

TEST(ProcessStarter, RanksThatHangAreEndedAfterAFailure) {
  const Outcome outcome = run("[ $RANK = 0 ] && exit 2; trap '' TERM; exec sleep 60");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_LT(outcome.time.count(), 30);  // 3 s, with room for a busy machine
  EXPECT_THAT(outcome.errors, IsEmpty());
}

TEST(ProcessStarter, ForwardsSignals) {
  const testing::ScratchDirectory directory;
  const std::string ready = directory.file("ready");
  sigset_t set, before;  // threads inherit it: only the starter takes the signal
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  std::jthread sender([&] {
    while (!std::filesystem::exists(ready + "0") || !std::filesystem::exists(ready + "1"))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    kill(getpid(), SIGUSR1);
  });
  const Outcome outcome = run("trap 'exit 0' USR1; touch " + ready + "$RANK; while true; do sleep 0.05; done", 2);
  EXPECT_EQ(outcome.status, 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(ProcessStarter, AProgramThatCannotBeRunIsNamedWithTheReason) {
  const auto error_of = [](const std::string& program) -> std::string {
    std::ostringstream errors;
    try {
      run_processes({{program}, 2, 1, "job"}, "test", errors);
    } catch (const IoError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of("/nowhere/program"), HasSubstr("/nowhere/program cannot be run: No such file or directory"));
  const testing::ScratchDirectory directory;
  std::ofstream(directory.file("text")) << "text";
  EXPECT_THAT(error_of(directory.file("text")), HasSubstr("text cannot be run: Permission denied"));
}

}  // namespace
}  // namespace megatron
