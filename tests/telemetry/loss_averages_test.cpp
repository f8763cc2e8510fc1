#include "megatron/telemetry/loss_averages.h"

#include <gtest/gtest.h>

#include <limits>

namespace megatron {
namespace {

using Losses = std::vector<NamedValue>;

TEST(LossAverages, AreMeansOverTakenIterationsOnly) {
  LossAverages averages;
  averages.add(Losses{{"lm loss", 2.0}, {"z_loss", 0.5}});
  averages.add(Losses{{"lm loss", 4.0}, {"z_loss", 1.5}});
  averages.add_skipped(Losses{{"lm loss", 100.0}});
  EXPECT_EQ(averages.means(), (Losses{{"lm loss", 3.0}, {"z_loss", 1.0}}));
  EXPECT_EQ(averages.num_iterations(), 3);
  EXPECT_EQ(averages.skipped_iterations(), 1);
  EXPECT_EQ(averages.nan_iterations(), 0);
}

TEST(LossAverages, CountNonFiniteLossesAmongTheSkippedIterations) {
  LossAverages averages;
  averages.add_skipped(Losses{{"lm loss", std::numeric_limits<double>::infinity()}});
  averages.add_skipped(Losses{{"lm loss", std::numeric_limits<double>::quiet_NaN()}});
  averages.add_skipped(Losses{{"lm loss", 2.0}});
  EXPECT_EQ(averages.skipped_iterations(), 3);
  EXPECT_EQ(averages.nan_iterations(), 2);
}

TEST(LossAverages, KeepWhatWasReadUntilTheyAreReset) {
  LossAverages averages;
  averages.add(Losses{{"lm loss", 2.0}});
  EXPECT_EQ(averages.means(), (Losses{{"lm loss", 2.0}}));
  averages.add(Losses{{"lm loss", 4.0}});
  averages.count_repetition();
  EXPECT_EQ(averages.means(), (Losses{{"lm loss", 3.0}}));
  EXPECT_EQ(averages.repeated_iterations(), 1);
  averages.reset();
  EXPECT_EQ(averages.repeated_iterations(), 0);
  EXPECT_EQ(averages.num_iterations(), 0);
  EXPECT_EQ(averages.means(), (Losses{{"lm loss", 0.0}}));
  averages.add(Losses{{"lm loss", 7.0}});
  EXPECT_EQ(averages.means(), (Losses{{"lm loss", 7.0}}));
}

}  // namespace
}  // namespace megatron
