// Messages, times and exit statuses of ranks as processes when one of them is late, lost, aborted
// or calls another operation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "commands/exit_code.h"
#include "tests/testing/mpirun.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MpiOutcome;

constexpr int kLost = static_cast<int>(ExitCode::kCommunication);
/// Time from the start of all ranks until each of them has named the culprit.
constexpr milliseconds kTimeout{500}, kLimit = kTimeout + seconds(5);
/// Time until mpirun has ended all. On a busy machine that takes seconds; culprits hang for 60.
constexpr seconds kLimitOfEnd{30};

MpiOutcome::Clock::time_point start_of(const MpiOutcome& outcome) {
  return outcome.arrival_of("all ranks have started");
}

/// Four ranks; each of `ranks` must print each of `texts` in one line with its own number, in time.
void expect_failure(const std::string& what, int status, const std::vector<int>& ranks,
                    const std::vector<std::string>& texts, milliseconds limit = kLimit) {
  const auto outcome = testing::run_under_mpi(4, {FAILING_RANKS, what});
  if (!outcome) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  EXPECT_EQ(outcome->status, status) << outcome->output;
  EXPECT_LT(outcome->end - start_of(*outcome), kLimitOfEnd) << outcome->output;
  for (int rank : ranks) {
    const size_t begin = outcome->output.find("megatron failing_ranks: [rank " + std::to_string(rank) + "] ");
    ASSERT_NE(begin, std::string::npos) << "rank " << rank << ": " << outcome->output;
    const size_t end = outcome->output.find('\n', begin);
    const std::string line = outcome->output.substr(begin, end - begin);
    EXPECT_LT(outcome->arrival_of(end) - start_of(*outcome), limit) << line;
    for (const std::string& text : texts) EXPECT_THAT(line, HasSubstr(text));
  }
}

TEST(MpiFailure, AHungRankIsNamedByAll) {
  expect_failure("hang", kLost, {0, 1, 3},
                 {"all_reduce #1 \"grad bucket 7\" of world timed out after 500 ms: rank 2 never entered it",
                  "Rank 2 waits in no operation; its last was barrier #0 \"start\" of world"});
}

TEST(MpiFailure, AStoppedProcessIsNamedByAll) {
  expect_failure("stop", kLost, {0, 1, 3},
                 {"rank 2 never entered it", "Rank 2 does not answer: its process hangs or is lost."});
}

TEST(MpiFailure, TheChainIsFollowedToTheRankThatBlocksAll) {
  expect_failure("chain", kLost, {0, 1, 2}, {"Rank 3 waits in no operation"});
}

TEST(MpiFailure, RanksOfOtherGroupsOfTheSameNameDoNotCount) {
  expect_failure("two groups", kLost, {0, 2},
                 {"barrier #0 \"activations\" of tp timed out after 500 ms: rank 3 never entered it; rank 2 waiting."},
                 kLimit);
}

TEST(MpiFailure, ARankThatThrowsEndsAllWithItsExitStatus) {
  const auto outcome = testing::run_under_mpi(4, {FAILING_RANKS, "throw"});
  if (!outcome) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  EXPECT_THAT(outcome->output, AllOf(HasSubstr("[rank 1] five is not six"),
                                     HasSubstr("[rank 0] aborted: rank 1 failed: five is not six"),
                                     HasSubstr("[rank 3] aborted: rank 1 failed: five is not six")));
  EXPECT_EQ(outcome->status, static_cast<int>(ExitCode::kFailure)) << outcome->output;
  for (const char* named : {"[rank 1] five", "[rank 0] aborted", "[rank 3] aborted"})
    EXPECT_LT(outcome->arrival_of(named) - start_of(*outcome), kLimit) << outcome->output;
}

TEST(MpiFailure, AnExceptionIsNotHiddenByTheWorkThatItDrops) {
  const auto outcome = testing::run_under_mpi(4, {FAILING_RANKS, "throw beside work"});
  if (!outcome) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  const std::string text = "rank 1 failed in its own code and dropped all_reduce #1 \"x\" of world: see its own error";
  EXPECT_THAT(outcome->output, AllOf(HasSubstr("[rank 1] five is not six"), HasSubstr("[rank 0] " + text),
                                     HasSubstr("[rank 3] " + text)));
  EXPECT_EQ(outcome->status, static_cast<int>(ExitCode::kFailure)) << outcome->output;
}

TEST(MpiFailure, ARankThatHangsAfterItsLastOperationIsNamedByAll) {
  expect_failure("late", kLost, {0, 2, 3},
                 {"the end of all ranks timed out after 500 ms: rank 1 never entered it; ranks 0, 2, 3 waiting.",
                  "Rank 1 waits in no operation; its last was barrier #0 \"start\" of world"});
}

TEST(MpiFailure, AProcessStoppedAfterItsOwnEndIsNamedByAll) {
  expect_failure("stop at the end", kLost, {0, 2, 3},
                 {"the end of all ranks timed out after 2000 ms: rank 1 never entered it",
                  "Rank 1 does not answer: its process hangs or is lost."},
                 seconds(1 + 2 + 5));
}

TEST(MpiFailure, AProcessStoppedInMpiFinalizeEndsAll) {
  expect_failure("stop in finalize", kLost, {0, 2, 3},
                 {"all ranks have ended, but MPI_Finalize has not returned after 500 ms: a rank that does "
                  "not print this hangs in it"});
}

TEST(MpiFailure, AKilledProcessEndsTheJobAndMpirunNamesIt) {
  const auto outcome = testing::run_under_mpi(4, {FAILING_RANKS, "kill"});
  if (!outcome) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  EXPECT_EQ(outcome->status, 128 + 9) << outcome->output;
  EXPECT_THAT(outcome->output, AllOf(HasSubstr("process rank 1"), HasSubstr("signal 9")));
  EXPECT_LT(outcome->arrival_of("signal 9") - start_of(*outcome), kLimit) << outcome->output;
}

TEST(MpiFailure, ARankThatLeavesIsNamedAtOnce) {
  expect_failure("leave", kLost, {0, 1, 2, 3},
                 {"all_reduce #1 \"x\" of world cannot complete: rank 1 has left without entering it"});
}

TEST(MpiFailure, AbortReachesAll) {
  expect_failure("abort", kLost, {0, 1, 2, 3}, {"aborted by rank 1: loss is not finite"});
}

TEST(MpiFailure, DisagreementIsNamedByAll) {
  expect_failure("another operation", kLost, {0, 1, 2, 3},
                 {"ranks disagree", "called all_reduce(float32, 6 elements, sum) as all_reduce #1 \"x\" of world",
                  "rank 1 called all_gather(float32, 6 elements) as all_gather #1 \"y\" of world"});
  expect_failure("another size", kLost, {0, 1, 2, 3},
                 {"message(float32, 4 elements, tag 3) as send #0 \"activation\"",
                  "message(float32, 5 elements, tag 3) as recv #0 \"gradient\""});
  expect_failure("another group", kLost, {0, 1, 2, 3}, {"call 1 is \"tp\" on rank 0 and \"dp\" on rank"});
}

TEST(MpiFailure, ADroppedOperationIsNamedByAll) {
  expect_failure("drop", kLost, {0, 1, 2, 3},
                 {"rank 0 dropped all_reduce #1 \"forgotten\" of world before ranks 1, 2, 3"});
}

}  // namespace
}  // namespace megatron
