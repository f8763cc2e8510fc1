// Training on several GPUs: every layout against one rank of the CPU. Skipped where there are fewer GPUs. Prints a line
// for each case.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>

#include "commands/exit_code.h"
#include "megatron/base/error.h"
#include "megatron/comm/nccl/nccl_world.h"
#include "megatron/comm/threads/rank_threads.h"
#include "tests/parallel/cuda_failures.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kSkipped = 77;

struct Outcome {
  int status = -1;
  std::string output;
  std::chrono::duration<double> after_now{0};  // from kNow to the end
};

Outcome run_ranks(int num_ranks, const std::string& what) {
  FILE* pipe = popen(fmt::format("{} {} {} 2>&1", CUDA_RANKS, num_ranks, what).c_str(), "r");
  Outcome outcome;
  Clock::time_point now{};
  for (char line[1024]; std::fgets(line, sizeof line, pipe);) {
    outcome.output += line;
    if (line == testing::kNow) now = Clock::now();
  }
  const int state = pclose(pipe);
  outcome.status = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  outcome.after_now = Clock::now() - now;
  fmt::print("{}", outcome.output);
  return outcome;
}

class CudaParallel : public ::testing::TestWithParam<int> {
 protected:
  void expect_success(const std::string& what) {
    const Outcome outcome = run_ranks(GetParam(), what);
    if (outcome.status == kSkipped) GTEST_SKIP() << outcome.output;
    EXPECT_EQ(outcome.status, 0);
    EXPECT_THAT(outcome.output, HasSubstr(" ok\n")) << "no case was run";
  }
  /// A job that loses no rank: what its end takes on this machine.
  static Outcome sound_job() { return run_ranks(GetParam(), "end"); }
  /// A job that loses a rank may take this much longer, as its ranks and their starter wait. @param timeout  that
  /// passes before
  static std::chrono::duration<double> limit_of_loss(const Outcome& sound, milliseconds timeout) {
    return timeout + NcclWorld::kTimeToTell + kTimeToEnd + sound.after_now;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, CudaParallel, ::testing::Values(2, 4, 8));

TEST_P(CudaParallel, EveryLayoutFollowsOneRankOfTheCpuFor20Steps) { expect_success("curves"); }
TEST_P(CudaParallel, InBf16LayoutsDepartNoMoreThanOrdersOfSummationDo) { expect_success("orders"); }
TEST_P(CudaParallel, MemoryIsWhatWasPlannedToTheByte) { expect_success("memory"); }
TEST_P(CudaParallel, CheckpointsMoveBetweenLayouts) { expect_success("checkpoint"); }
TEST_P(CudaParallel, PipelinesTrainWhoseKernelsFillTheQueuesOfTheirGpus) { expect_success("queues"); }
TEST_P(CudaParallel, TheHostWaitsForNoOtherRankInAStep) { expect_success("waits"); }

TEST_P(CudaParallel, ShardsBucketsAndOverlapOfTwoRanksChangeNoBit) {
  if (GetParam() != 2) GTEST_SKIP() << "NCCL adds up more than two ranks in an order of its own";
  expect_success("bits");
}

TEST_P(CudaParallel, StepsThatAreGraphsHaveTheBitsOfStepsOpByOp) { expect_success("graphs"); }
TEST_P(CudaParallel, StepsThatAreGraphsHaveThemWhereNcclMovesAllRows) { expect_success("graphs_by_nccl"); }

TEST_P(CudaParallel, ARankThatFailsEndsAllAndIsNamed) {
  const Outcome sound = sound_job();
  if (sound.status == kSkipped) GTEST_SKIP() << sound.output;
  ASSERT_EQ(sound.status, 0);
  for (const char* what : {"fail", "fail_in_graphs"}) {
    const Outcome outcome = run_ranks(GetParam(), what);
    EXPECT_EQ(outcome.status, static_cast<int>(ExitCode::kFailure)) << what;
    EXPECT_THAT(outcome.output, HasSubstr(fmt::format("[rank {}] five is not six", GetParam() - 1)));
    EXPECT_LT(outcome.after_now, limit_of_loss(sound, milliseconds(0))) << what;
  }
}

TEST_P(CudaParallel, ARankThatHangsIsNamedAfterTheTimeout) {
  const Outcome sound = sound_job();
  if (sound.status == kSkipped) GTEST_SKIP() << sound.output;
  ASSERT_EQ(sound.status, 0);
  for (const char* what : {"hang", "hang_in_graphs", "hang_in_graphs_of_replicas"}) {
    const Outcome outcome = run_ranks(GetParam(), what);
    EXPECT_EQ(outcome.status, static_cast<int>(ExitCode::kCommunication)) << what;
    EXPECT_THAT(outcome.output, HasSubstr(fmt::format("timed out after {} ms: rank {} never",
                                                      testing::kShortTimeout.count(), GetParam() - 1)));
    if (std::string_view(what).find("graphs") != std::string_view::npos) {
      EXPECT_THAT(outcome.output, HasSubstr("Its last launch of a CUDA graph was #1."));
    }
    EXPECT_LT(outcome.after_now, limit_of_loss(sound, testing::kShortTimeout)) << what;
  }
}

TEST_P(CudaParallel, ARankThatIsKilledInsideOfAGraphEndsAllAndIsNamed) {
  const Outcome sound = sound_job();
  if (sound.status == kSkipped) GTEST_SKIP() << sound.output;
  ASSERT_EQ(sound.status, 0);
  for (const char* what : {"kill_in_graphs", "kill_in_graphs_of_replicas"}) {
    const Outcome outcome = run_ranks(GetParam(), what);
    EXPECT_EQ(outcome.status, 128 + SIGKILL) << what;
    EXPECT_THAT(outcome.output, HasSubstr(fmt::format("rank {} was ended by signal 9 (Killed)", GetParam() - 1)));
    EXPECT_LT(outcome.after_now, limit_of_loss(sound, milliseconds(0))) << what;
  }
}

}  // namespace
}  // namespace megatron
