// Training on several GPUs: every layout against one rank of the CPU. Skipped where there are fewer GPUs. Prints a line
// for each case.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "commands/exit_code.h"
#include "megatron/base/error.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kSkipped = 77;

struct Outcome {
  int status = -1;
  std::string output;
  std::chrono::duration<double> after_now{0};  // from the line "now" to the end
};

Outcome run_ranks(int num_ranks, const std::string& what) {
  FILE* pipe = popen(fmt::format("{} {} {} 2>&1", CUDA_RANKS, num_ranks, what).c_str(), "r");
  Outcome outcome;
  Clock::time_point now{};
  for (char line[1024]; std::fgets(line, sizeof line, pipe);) {
    outcome.output += line;
    if (std::string_view(line) == "now\n") now = Clock::now();
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
  for (const char* what : {"fail", "fail_in_graphs"}) {
    const Outcome outcome = run_ranks(GetParam(), what);
    if (outcome.status == kSkipped) GTEST_SKIP() << outcome.output;
    EXPECT_EQ(outcome.status, static_cast<int>(ExitCode::kFailure)) << what;
    EXPECT_THAT(outcome.output, HasSubstr(fmt::format("[rank {}] five is not six", GetParam() - 1)));
    EXPECT_LT(outcome.after_now.count(), 3 + 5) << what;
  }
}

TEST_P(CudaParallel, ARankThatHangsIsNamedAfterTheTimeout) {
  for (const char* what : {"hang", "hang_in_graphs", "hang_in_graphs_of_replicas"}) {
    const Outcome outcome = run_ranks(GetParam(), what);
    if (outcome.status == kSkipped) GTEST_SKIP() << outcome.output;
    EXPECT_EQ(outcome.status, static_cast<int>(ExitCode::kCommunication)) << what;
    EXPECT_THAT(outcome.output, HasSubstr(fmt::format("timed out after 3000 ms: rank {} never", GetParam() - 1)));
    EXPECT_LT(outcome.after_now.count(), 3 + 5) << what;
  }
}

}  // namespace
}  // namespace megatron
