// The program as a process of its own, of whose ranks one hangs in the middle of training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "commands/exit_code.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// `megatron pretrain_gpt` on four ranks, with its output on a pipe.
class Training {
 public:
  Training() {
    std::vector<std::string> words = {MEGATRON_PROGRAM,
                                      "pretrain_gpt",
                                      "--nproc-per-node",
                                      "4",
                                      "--distributed-timeout-seconds-after-init",
                                      "2",
                                      "--num-layers",
                                      "2",
                                      "--hidden-size",
                                      "16",
                                      "--num-attention-heads",
                                      "2",
                                      "--seq-length",
                                      "16",
                                      "--max-position-embeddings",
                                      "16",
                                      "--micro-batch-size",
                                      "1",
                                      "--global-batch-size",
                                      "4",
                                      "--train-iters",
                                      "1000000",
                                      "--lr",
                                      "1e-3",
                                      "--mock-data",
                                      "--tokenizer-type",
                                      "NullTokenizer",
                                      "--vocab-size",
                                      "50",
                                      "--num-threads",
                                      "1",
                                      "--log-interval",
                                      "1"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    output_ = ends[0];
  }
  ~Training() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
    ::close(output_);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  pid_t process() const { return process_; }
  const std::string& text() const { return text_; }
  /// Reads on until the text holds `cue`. @return false if it has ended
  bool read_until(const std::string& cue) {
    std::array<char, 4096> buffer{};
    while (text_.find(cue) == std::string::npos) {
      const ssize_t count = ::read(output_, buffer.data(), buffer.size());
      if (count <= 0) return false;
      text_.append(buffer.data(), static_cast<size_t>(count));
    }
    return true;
  }
  void read_to_the_end() { read_until("\1"); }
  int exit_status() {
    int status = 0;
    ::waitpid(std::exchange(process_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t process_ = 0;
  int output_ = -1;
  std::string text_;
};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// A thread of another process that stands still, as if it hung: where it sleeps, so that it holds no lock.
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

TEST(Hang, OfOneRankEndsTrainingWithinTheTimeoutAndFiveSeconds) {
  Training training;
  ASSERT_TRUE(training.read_until("iteration        3/")) << training.text();
  Clock::time_point begin;
  {
    const StoppedThread rank(training.process(), "rank 2");
    if (rank.is_forbidden()) GTEST_SKIP() << "no ptrace here";
    ASSERT_TRUE(rank.was_found()) << "by its name";
    ASSERT_TRUE(rank.is_stopped());
    begin = Clock::now();
    training.read_to_the_end();
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2 + 5));
  EXPECT_EQ(training.exit_status(), static_cast<int>(ExitCode::kCommunication));
  EXPECT_THAT(training.text(), AllOf(HasSubstr("timed out after 2000 ms: rank 2 never entered it"),
                                     HasSubstr("megatron pretrain_gpt: rank 2 still runs 3 s after this failure")));
}

}  // namespace
}  // namespace megatron
