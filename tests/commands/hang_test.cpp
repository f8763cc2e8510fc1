// The program as a separate process, one of whose ranks hangs in the middle of training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "commands/exit_code.h"
#include "tests/testing/program.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Program;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Stops a thread of another process, as if it hung, while it sleeps, so that it holds no lock.
class StoppedThread {
 public:
  StoppedThread(pid_t process, const std::string& name) {
    const std::string tasks = "/proc/" + std::to_string(process) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks))
      if (first_line(task.path() / "comm") == name) thread_ = std::stoi(task.path().filename());
    is_stopped_ = thread_ != 0 && ::ptrace(PTRACE_SEIZE, thread_, 0, 0) == 0;
    error_ = errno;
    const std::string futex = std::to_string(SYS_futex) + " ";
    while (is_stopped_) {
      ::ptrace(PTRACE_INTERRUPT, thread_, 0, 0);
      ::waitpid(thread_, nullptr, __WALL);
      if (first_line(tasks + "/" + std::to_string(thread_) + "/syscall").starts_with(futex)) break;
      ::ptrace(PTRACE_CONT, thread_, 0, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  /// When its process has ended.
  ~StoppedThread() {
    if (is_stopped_) ::waitpid(thread_, nullptr, __WALL);
  }
  StoppedThread(const StoppedThread&) = delete;
  StoppedThread& operator=(const StoppedThread&) = delete;

  bool was_found() const { return thread_ != 0; }
  bool is_stopped() const { return is_stopped_; }
  bool is_forbidden() const { return was_found() && !is_stopped_ && error_ == EPERM; }

 private:
  pid_t thread_ = 0;
  bool is_stopped_ = false;
  int error_ = 0;
};

TEST(Hang, AHungRankIsReportedWithinTheTimeoutAndFiveSecondsAndEndsTraining) {
  Program training(testing::words_of(MEGATRON_PROGRAM
                                     " pretrain_gpt --nproc-per-node 4 --distributed-timeout-seconds-after-init 2"
                                     " --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16"
                                     " --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 4"
                                     " --train-iters 1000000 --lr 1e-3 --mock-data --tokenizer-type NullTokenizer"
                                     " --vocab-size 50 --num-threads 1 --log-interval 1"));
  ASSERT_TRUE(training.read_until("iteration        3/")) << training.output();
  {
    const StoppedThread rank(training.process(), "rank 2");
    if (rank.is_forbidden()) GTEST_SKIP() << "no ptrace here";
    ASSERT_TRUE(rank.was_found()) << "by its name";
    ASSERT_TRUE(rank.is_stopped());
    const auto begin = Clock::now();
    ASSERT_TRUE(training.read_until("timed out after 2000 ms: rank 2 never entered it")) << training.output();
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2 + 5));
    training.read_to_the_end();  // would not return if the process waited for the rank
  }
  const int status = training.wait_status();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ExitCode::kCommunication));
  EXPECT_THAT(training.output(), AllOf(HasSubstr("timed out after 2000 ms: rank 2 never entered it"),
                                       HasSubstr("megatron pretrain_gpt: rank 2 still runs 3 s after this failure")));
}

}  // namespace
}  // namespace megatron
