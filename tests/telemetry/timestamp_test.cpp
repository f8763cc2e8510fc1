#include "megatron/telemetry/timestamp.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

using namespace std::chrono_literals;

TEST(Timestamp, ReadsBackWhatItWrote) {
  const WallTime noon = parse_date_time("2026-08-01 12:00:00").value();
  EXPECT_EQ(date_time_text(noon), "2026-08-01 12:00:00");
  EXPECT_EQ(parse_date_time(date_time_text(noon + 999ms)), noon);
}

TEST(Timestamp, HasSixDigitsOfFraction) {
  EXPECT_EQ(date_time_microseconds_text(parse_date_time("2026-01-31 00:00:00").value() + 70us),
            "2026-01-31 00:00:00.000070");
}

TEST(Timestamp, CountsUnixSecondsWithFraction) { EXPECT_EQ(unix_seconds(WallTime(1500ms)), 1.5); }

TEST(Timestamp, IsNothingInOtherForms) { EXPECT_EQ(parse_date_time("yesterday"), std::nullopt); }

}  // namespace
}  // namespace megatron
