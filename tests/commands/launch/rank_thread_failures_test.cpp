// The end of a process whose ranks are threads when one of them hangs in its own code.
#include "commands/launch/rank_thread_failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <iostream>
#include <sstream>

#include "commands/exit_code.h"
#include "tests/testing/rank_threads.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using testing::RankContext;

constexpr milliseconds kShort{300};

[[noreturn]] void sleep_for_ever() {
  for (;;) ::pause();
}

/// Runs ranks like a command.
int run_command_on(int num_ranks, std::ostream& err, const std::function<void(RankContext&)>& function) {
  return run_command("test", err,
                     [&] { testing::run_ranks(num_ranks, function, kShort, report_and_end("test", err)); });
}

/// Runs `body` in a child process, which must end within the timeout + 5 s; starting it counts.
template <class Body, class Matcher>
void expect_end(Body body, ExitCode code, Matcher output) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EXIT(body(), ExitedWithCode(static_cast<int>(code)), output);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kShort + std::chrono::seconds(5));
}

TEST(RankThreadFailuresDeathTest, AHungRankIsReportedAndTheProcessEndsWithExitStatus7) {
  expect_end(
      [] {
        run_command_on(4, std::cerr, [](RankContext& context) {
          if (context.rank == 2) sleep_for_ever();
          context.group.barrier({"gradients"}).wait();
        });
      },
      ExitCode::kCommunication,
      AllOf(HasSubstr("megatron test: [rank "), HasSubstr("timed out after 300 ms: rank 2 never entered it"),
            HasSubstr("Rank 2 waits in no operation"), HasSubstr("megatron test: rank 2 still runs 3 s after")));
}

TEST(RankThreadFailuresDeathTest, AHangAfterTheLastOperationIsReportedToo) {
  expect_end(
      [] {
        run_command_on(3, std::cerr, [](RankContext& context) {
          context.group.barrier({"last"}).wait();
          if (context.rank > 0) sleep_for_ever();
        });
      },
      ExitCode::kCommunication,
      AllOf(HasSubstr("the end of all ranks timed out after 300 ms: ranks 1, 2 never"),
            HasSubstr("ranks 1, 2 still run 3 s after")));
}

TEST(RankThreadFailuresDeathTest, ExitStatusComesFromTheFailure) {
  expect_end(
      [] {
        run_command_on(2, std::cerr, [](RankContext& context) {
          context.group.barrier({"start"}).wait();
          if (context.rank == 1) throw DataError("sample 7 is damaged");
          sleep_for_ever();
        });
      },
      ExitCode::kData, AllOf(HasSubstr("[rank 1] sample 7 is damaged"), HasSubstr("rank 0 still runs")));
}

TEST(RankThreadFailures, ArePrintedOnce) {
  std::ostringstream err;
  const int status = run_command_on(3, err, [](RankContext& context) {
    if (context.rank == 1) throw DataError("sample 7 is damaged");
    context.group.barrier({"x"}).wait();
  });
  EXPECT_EQ(status, static_cast<int>(ExitCode::kData));
  EXPECT_EQ(err.str(), "megatron test: [rank 1] sample 7 is damaged\n");
}

}  // namespace
}  // namespace megatron
