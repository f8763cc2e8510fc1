// Messages, times and exit statuses of ranks on GPUs when one is late, lost, aborted or calls
// another operation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "commands/exit_code.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

constexpr int kSkipped = 77, kLost = static_cast<int>(ExitCode::kCommunication);

/// Two ranks end with `status` within a time, and print `texts`.
void expect_failure(const std::string& what, int status, const std::vector<std::string>& texts) {
  const auto begin = std::chrono::steady_clock::now();
  FILE* pipe = popen((std::string(FAILING_RANKS) + " '" + what + "' 2>&1").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  for (char block[4096]; const size_t size = std::fread(block, 1, sizeof block, pipe);) output.append(block, size);
  const int state = pclose(pipe);
  const int own = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  if (own == kSkipped) GTEST_SKIP() << output;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(own, status) << output;
  EXPECT_LT(time.count(), 20) << output;
  for (const std::string& text : texts) EXPECT_THAT(output, HasSubstr(text));
}

TEST(NcclFailure, ARankThatHangsInItsOwnCodeIsNamed) {
  expect_failure("hang", kLost,
                 {"[rank 0] all_reduce #1 \"grad bucket 7\" of world timed out after 500 ms: rank 1 never entered it",
                  "Rank 1 waits in no operation; its last was barrier #0 \"start\" of world"});
}

TEST(NcclFailure, TheWatchdogNoticesOperationsWithoutAWaitOfTheHost) {
  expect_failure("device", kLost, {"all_reduce #1 \"grad bucket 7\" of world timed out after 500 ms: rank 1 never"});
}

TEST(NcclFailure, ACopyThatWaitsForAHungRankEnds) {
  expect_failure("gather", kLost, {"all_gather #1 \"rows\" of world timed out after 500 ms: rank 1 never entered it"});
}

TEST(NcclFailure, ResultsReadAfterAFailureAreNotUsed) {
  expect_failure("read", kLost, {"[rank 0] all_gather #1 \"rows\" of world timed out after 500 ms: rank 1 never"});
}

TEST(NcclFailure, AMessageThatIsNotSentNamesItsSender) {
  expect_failure("message", kLost, {"recv #0 \"activation\" of world timed out after 500 ms: rank 1 never entered it"});
}

TEST(NcclFailure, AMessageOnDeviceMemoryThatIsNotSentEnds) {
  expect_failure("message on device", kLost,
                 {"recv #0 \"activation\" of world timed out after 500 ms: rank 1 never entered it"});
}

TEST(NcclFailure, AReceiverWhoseSenderIsKilledEnds) {
  expect_failure("kill beside message", 128 + 9, {"rank 1 was ended by signal 9 (Killed)"});
}

TEST(NcclFailure, ARankThatThrowsEndsAllWithItsExitStatus) {
  expect_failure("throw beside work", static_cast<int>(ExitCode::kFailure), {"[rank 1] five is not six"});
}

TEST(NcclFailure, ARankThatThrowsWithNothingInFlightDoesNotWaitForTheOthers) {
  expect_failure("throw", static_cast<int>(ExitCode::kFailure), {"[rank 1] five is not six"});
}

TEST(NcclFailure, ARankThatAbortsIsNamedByTheOther) {
  expect_failure("abort", kLost, {"[rank 0] aborted by rank 1: loss is not finite"});
}

TEST(NcclFailure, ARankThatIsKilledIsNamed) {
  expect_failure("kill", 128 + 9, {"rank 1 was ended by signal 9 (Killed)"});
}

TEST(NcclFailure, AnOperationDroppedTooEarlyNamesTheRankThatDroppedIt) {
  expect_failure("drop", kLost, {"rank 1 dropped all_reduce #1 \"forgotten\" of world before rank 0 had entered it"});
}

TEST(NcclFailure, ARankThatHangsInsideOfAGraphNamesItsLaunch) {
  expect_failure("graphs that differ", kLost,
                 {"[rank 0] launch #0 of a CUDA graph \"iteration 8\" timed out after 500 ms although ranks 0, 1 have "
                  "entered it; rank 0 waiting"});
}

TEST(NcclFailure, AGraphThatChangesOnOneRankOnlyEndsAllAtOnce) {
  expect_failure("change", kLost,
                 {"[rank 0] the change of graph step #1 \"iteration 8\" is on rank 1 only: it has less memory"});
}

TEST(NcclFailure, ARankThatHangsWhileAllChangeTheirGraphIsNamed) {
  expect_failure(
      "change beside a rank that hangs", kLost,
      {"[rank 0] the change of graph step #1 \"iteration 8\" timed out after 500 ms: rank 1 never entered it",
       "Rank 1 waits in no operation; its last was barrier #0 \"start\" of world"});
}

TEST(NcclFailure, DifferentSplitsAreReported) {
  expect_failure("split", kLost, {"[split] ranks disagree: call 1 is \"dp\" on rank 0 and \"tp\" on rank 1"});
}

}  // namespace
}  // namespace megatron
