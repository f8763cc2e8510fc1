#include "megatron/telemetry/progress.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/testing/manual_clock.h"

namespace megatron {
namespace {

/// A bar whose output is collected.
class ProgressBarTest : public ::testing::Test {
 protected:
  ProgressBar bar(ProgressBarOptions options) {
    return ProgressBar(
        options, [this](std::string_view text) { output_ += text; }, clock_.reader());
  }
  std::string take_output() { return std::exchange(output_, ""); }

  testing::ManualClock clock_;
  std::string output_;
};

TEST_F(ProgressBarTest, RedrawsOneLineOnATerminal) {
  ProgressBar progress = bar({.is_terminal = true, .columns = 80, .unicode = false});
  progress.begin({.title = "training", .unit = "it", .total = 200});
  EXPECT_EQ(take_output(), "\r\x1b[Ktraining  ----------------------------------------   0%  0/200 it");
  clock_.advance_seconds(10);
  progress.update(50, "loss 2.31");
  EXPECT_EQ(take_output(), "\r\x1b[Ktraining  #####----------------  25%  50/200 it  5.0 it/s  0:30 left  loss 2.31");
  clock_.advance_seconds(30);
  progress.update(200, "loss 1.50");
  progress.end();
  EXPECT_TRUE(take_output().ends_with(" 100%  200/200 it  5.0 it/s  0:40  loss 1.50\n"));
}

TEST_F(ProgressBarTest, DrawsNoMoreOftenThanItsInterval) {
  ProgressBar progress = bar({.is_terminal = true});
  progress.begin({.title = "t", .total = 100});
  take_output();
  for (int i = 1; i <= 50; ++i) {
    clock_.advance_seconds(0.001);
    progress.update(i, "");
  }
  EXPECT_EQ(take_output(), "");
  clock_.advance_seconds(0.1);
  progress.update(51, "");
  EXPECT_NE(take_output(), "");
}

TEST_F(ProgressBarTest, PrintsPlainLinesNowAndThenElsewhere) {
  ProgressBar progress = bar({.is_terminal = false});
  progress.begin({.title = "training", .unit = "it", .total = 200});
  clock_.advance_seconds(5);
  progress.update(20, "");
  EXPECT_EQ(take_output(), "");
  clock_.advance_seconds(5);
  progress.update(40, "loss 2.31");
  EXPECT_EQ(take_output(), "training: 40/200 it (20%), 4.0 it/s, 0:40 left, loss 2.31\n");
  progress.end();
  EXPECT_EQ(take_output(), "training: 40/200 it (20%), 4.0 it/s, 0:40 left, loss 2.31\n");
  progress.end();
  EXPECT_EQ(take_output(), "");
}

TEST_F(ProgressBarTest, PutsMessagesAboveTheBar) {
  ProgressBar progress = bar({.is_terminal = true, .columns = 40, .unicode = false});
  progress.message("before");
  EXPECT_EQ(take_output(), "before\n");
  progress.begin({.title = "t", .total = 10});
  take_output();
  progress.message(" iteration 5");
  EXPECT_EQ(take_output(), "\r\x1b[K iteration 5\n\r\x1b[Kt  -------------------------   0%  0/10");
}

TEST_F(ProgressBarTest, CountsTheSpeedOfThisRunOnlyWhenWorkIsResumed) {
  ProgressBar progress = bar({.is_terminal = false});
  progress.begin({.title = "training", .unit = "it", .total = 1000, .start = 900});
  clock_.advance_seconds(10);
  progress.update(920, "");
  EXPECT_EQ(take_output(), "training: 920/1000 it (92%), 2.0 it/s, 0:40 left\n");
}

TEST_F(ProgressBarTest, HasNeitherBarNorEstimateWithoutATotal) {
  ProgressBar progress = bar({.is_terminal = true, .columns = 80});
  progress.begin({.title = "reading", .unit = "docs"});
  take_output();
  clock_.advance_seconds(2);
  progress.update(1'234'567, "");
  EXPECT_EQ(take_output(), "\r\x1b[Kreading  1.23M docs  617k docs/s  0:02");
}

TEST_F(ProgressBarTest, NeverWrapsANarrowTerminal) {
  ProgressBar progress = bar({.is_terminal = true, .columns = 20, .unicode = false});
  progress.begin({.title = "training", .unit = "it", .total = 200});
  clock_.advance_seconds(1);
  progress.update(3, "a long note that does not fit");
  const std::string text = take_output();
  EXPECT_EQ(text.substr(text.rfind('\r')), "\r\x1b[Ktraining    1%  3/2");
}

TEST_F(ProgressBarTest, LeavesAFreshLineWhenItIsDestroyed) {
  { bar({.is_terminal = true}).begin({.title = "t", .total = 2}); }
  EXPECT_TRUE(take_output().ends_with("\n"));
}

TEST_F(ProgressBarTest, ShowsSlowWorkInSecondsPerUnit) {
  ProgressBar progress = bar({.is_terminal = false});
  progress.begin({.title = "training", .unit = "it", .total = 4});
  clock_.advance_seconds(40);
  progress.update(2, "");
  EXPECT_EQ(take_output(), "training: 2/4 it (50%), 20.0 s/it, 0:40 left\n");
}

TEST(DurationText, GrowsWithTheDuration) {
  EXPECT_EQ(duration_text(7.4), "0:07");
  EXPECT_EQ(duration_text(112), "1:52");
  EXPECT_EQ(duration_text(2 * 3600 + 3 * 60 + 4), "2:03:04");
  EXPECT_EQ(duration_text(3 * 86400 + 4 * 3600 + 5 * 60 + 6), "3d 4:05:06");
  EXPECT_EQ(duration_text(-1), "?");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "?");
}

TEST(CountText, IsExactWhileShort) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(99'999), "99999");
  EXPECT_EQ(count_text(100'000), "100k");
  EXPECT_EQ(count_text(999'600), "1.00M");
  EXPECT_EQ(count_text(12'345'678), "12.3M");
  EXPECT_EQ(count_text(9'223'372'036'854'775'807), "9.22E");
}

TEST(BarText, FillsByEighthsOfACell) {
  EXPECT_EQ(bar_text(0.0, 4, true), "    ");
  EXPECT_EQ(bar_text(0.5, 4, true), "██  ");
  EXPECT_EQ(bar_text(0.40625, 4, true), "█▋  ");
  EXPECT_EQ(bar_text(1.0, 4, true), "████");
  EXPECT_EQ(bar_text(7.0, 4, true), "████");
  EXPECT_EQ(bar_text(0.5, 4, false), "##--");
}

}  // namespace
}  // namespace megatron
