#include "megatron/base/thread_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <fstream>

#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

/// Fails as std::thread does if the system has no more threads.
struct RefusedThread {
  template <class Function>
  explicit RefusedThread(Function&&) {
    throw std::system_error(EAGAIN, std::generic_category());
  }
};

TEST(StartThread, RunsTheFunction) {
  std::atomic<int> ran{0};
  start_thread("to count", [&] { ++ran; });
  start_thread<std::thread>("to count", [&] { ++ran; }).join();
  EXPECT_EQ(ran, 2);
}

TEST(StartThread, SaysWhichThreadCouldNotStartAndWhatLimitsIt) {
  EXPECT_THAT([] { start_thread<RefusedThread>("to read training data ahead", [] {}); },
              ThrowsMessage<ThreadRefusal>(AllOf(StartsWith("The system starts no thread to read training data ahead"),
                                                 HasSubstr("Resource temporarily unavailable"), HasSubstr("ulimit -u"),
                                                 HasSubstr("pids.max"))));
}

TEST(StartThread, NamesTheLimitOfTheUserAndTheLeastOfTheCgroups) {
  const testing::ScratchDirectory root;
  const auto write = [&](const std::string& name, const std::string& content) {
    const std::filesystem::path path = root.file(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
  };
  const auto text = [&] { return thread_refusal_text("to count", "no", root.path()); };
  EXPECT_THAT(text(), AllOf(HasSubstr("allows this user unknown processes"), HasSubstr("job unlimited (pids.max")));
  write("proc/self/limits", "Limit  Soft Limit  Hard Limit  Units\nMax processes             1234  5678  processes\n");
  write("proc/self/cgroup", "0::/box/run\n");
  write("sys/fs/cgroup/box/run/pids.max", "max\n");
  write("sys/fs/cgroup/box/pids.max", "64\n");
  EXPECT_THAT(text(), AllOf(HasSubstr("allows this user 1234 processes"), HasSubstr("job 64 (pids.max")));
  write("proc/self/cgroup", "5:memory:/box/run\n4:pids:/other\n");
  write("sys/fs/cgroup/pids/other/pids.max", "32\n");
  EXPECT_THAT(text(), HasSubstr("job 32 (pids.max"));
}

}  // namespace
}  // namespace megatron
