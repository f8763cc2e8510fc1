#include "megatron/telemetry/run_messages.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

using namespace std::chrono_literals;

WallTime noon_of_run() { return parse_date_time("2026-08-01 12:00:00").value() + 7us; }

TEST(RunMessages, MilestonesAndExitsCarryTheTime) {
  EXPECT_EQ(milestone_line("after dataloaders are built", noon_of_run()),
            "[after dataloaders are built] datetime: 2026-08-01 12:00:00.000007 ");
  EXPECT_EQ(exit_after_signal_line("SIGTERM", noon_of_run()),
            "[exiting program after receiving SIGTERM.] datetime: 2026-08-01 12:00:00.000007 ");
  EXPECT_EQ(exit_after_minutes_line(2.5, noon_of_run()),
            "[exiting program after 2.5 minutes] datetime: 2026-08-01 12:00:00.000007 ");
  EXPECT_EQ(exit_at_iteration_line(40, noon_of_run()),
            "[exiting program at iteration 40] datetime: 2026-08-01 12:00:00.000007 ");
}

TEST(RunMessages, MemoryIsInUnitsOf1024Squared) {
  DeviceMemoryUse use{.allocated_bytes = 1 << 20,
                      .max_allocated_bytes = 3 << 19,
                      .reserved_bytes = 2 << 20,
                      .max_reserved_bytes = 4 << 20};
  EXPECT_EQ(memory_line(3, 10, use),
            "[Rank 3] (after 10 iterations) memory (MB) | allocated: 1.00 | max allocated: 1.50 | reserved: 2.00 | "
            "max reserved: 4.00");
  use.device_used_bytes = std::int64_t{5} << 30;
  EXPECT_TRUE(memory_line(3, 10, use).ends_with("max reserved: 4.00 | total device memory used: 5120.00"));
  EXPECT_EQ(theoretical_memory_line(1 << 20, 1 << 19),
            "Theoretical memory footprints: weight and optimizer=1.00 MB, activation=0.50 MB, total=1.50 MB");
}

}  // namespace
}  // namespace megatron
