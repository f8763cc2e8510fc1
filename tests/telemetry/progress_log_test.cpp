#include "megatron/telemetry/progress_log.h"

#include <gtest/gtest.h>

#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using namespace std::chrono_literals;

WallTime noon() { return parse_date_time("2026-08-01 12:00:00").value(); }

TEST(ProgressLog, WritesMegatronsLines) {
  const testing::ScratchDirectory scratch;
  PosixFileSystem files;
  ProgressLog log(files, scratch.file("save"), "123", 8);
  log.job_started(noon());
  log.checkpoint_saved(noon() + 100s, {.iteration = 10, .flops = 8e15, .job_seconds = 50, .tokens = 2.5e9});
  log.checkpoint_deleted(noon() + 202s, 10);
  EXPECT_EQ(read_file(files, scratch.file("save/progress.txt")),
            "2026-08-01 12:00:00\tJob ID: 123\t# GPUs: 8\tStarting job\n"
            "2026-08-01 12:01:40\tJob ID: 123\t# GPUs: 8\tSaved checkpoint\tIteration: 10\t"
            "Job throughput: 20.0 TFLOP/s/GPU\tCumulative throughput: 10.0 TFLOP/s/GPU\t"
            "Floating-point operations: 8.00e+15\tTokens (in billions): 2.50\n"
            "2026-08-01 12:03:22\tJob ID: 123\t# GPUs: 8\tDeleted checkpoint\tIteration: 10\n");
}

TEST(ProgressLog, CountsTheCumulativeThroughputFromTheFirstJobOfThatSize) {
  const std::string text =
      "2026-08-01 10:00:00\tJob ID: 1\t# GPUs: 4\tStarting job\n"
      "2026-08-01 11:00:00\tJob ID: 1\t# GPUs: 4\tSaved checkpoint\tIteration: 5\tJob throughput: 1.0 TFLOP/s/GPU\t"
      "Cumulative throughput: 1.0 TFLOP/s/GPU\tFloating-point operations: 3.00e+15\tTokens (in billions): 1.00\n"
      "2026-08-01 12:00:00\tJob ID: 2\t# GPUs: 8\tStarting job\n"
      "2026-08-01 13:00:00\tJob ID: 3\t# GPUs: 8\tStarting job\n";
  const auto start = find_job_start(text, 8);
  ASSERT_TRUE(start);
  EXPECT_EQ(start->time, noon());
  EXPECT_DOUBLE_EQ(start->flops, 3e15);
  EXPECT_FALSE(find_job_start(text, 4)) << "the jobs of 8 came after those of 4";
  EXPECT_FALSE(find_job_start("", 4));
}

TEST(ProgressLog, PassesOverLinesThatACrashHasCutOff) {
  const std::string text =
      "2026-08-01 12:00:00\tJob ID: 1\t# GPUs: 4\tStarting job\n"
      "2026-08-01 13:00:00\tJob I\n"
      "garbage\n";
  EXPECT_EQ(find_job_start(text, 4)->time, noon());
}

}  // namespace
}  // namespace megatron
