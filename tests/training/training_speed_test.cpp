#include "megatron/training/training_speed.h"

#include <gtest/gtest.h>

#include "megatron/training/planning/theoretical_flops.h"
#include "tests/testing/scratch_directory.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using testing::gpt2_like;
using testing::small_config;

double flops_of(const PretrainConfig& config, int64_t num_samples) {
  return theoretical_flops(config.transformer, num_samples, 16);
}

TEST(TrainingSpeed, CountsTokensOfAllRanksAndOperationsOfOne) {
  const PretrainConfig config = small_config(gpt2_like(), 2);
  const double flops = flops_of(config, 4);
  const TrainingSpeed speed = training_speed(config, {.peak_flops = flops, .ceiling_flops = flops / 2}, 4, 2.0);
  EXPECT_EQ(speed.tokens_per_second, 4 * 16 / 2.0);
  EXPECT_DOUBLE_EQ(speed.tflops_per_gpu, flops / 2.0 / 2 / 1e12);
  EXPECT_DOUBLE_EQ(speed.mfu_percent.value(), 25);
  EXPECT_DOUBLE_EQ(speed.kernel_ceiling_percent.value(), 50);
}

TEST(TrainingSpeed, TakesTheKernelCeilingOfTheFlagBeforeTheMeasuredOne) {
  const double flops = flops_of(small_config(gpt2_like()), 4);
  const PretrainConfig config = small_config(gpt2_like(fmt::format("--kernel-ceiling {}", flops / 1e12)));
  EXPECT_NEAR(training_speed(config, {.ceiling_flops = flops / 2}, 4, 1.0).kernel_ceiling_percent.value(), 100, 1e-9);
}

TEST(TrainingSpeed, SaysOnlyWhatIsKnown) {
  const PretrainConfig config = small_config(gpt2_like());
  const TrainingSpeed unknown = training_speed(config, {}, 4, 1.0);
  EXPECT_FALSE(unknown.mfu_percent.has_value());
  EXPECT_FALSE(unknown.kernel_ceiling_percent.has_value());
  EXPECT_EQ(speed_text(unknown), "64 tokens/s");
  EXPECT_EQ(speed_text({.tokens_per_second = 1.5e6, .mfu_percent = 41.04, .kernel_ceiling_percent = 82.06}),
            "1.50M tokens/s, MFU 41.0 %, 82.1 % of ceiling");
}

TEST(RecentSpeed, ForgetsTheFirstStepAndOldOnes) {
  const PretrainConfig config = small_config(gpt2_like());
  RecentSpeed recent(config, {});
  EXPECT_EQ(recent.text(), "");
  recent.add(4, 1000);
  EXPECT_EQ(recent.text(), "");
  recent.add(4, 2);
  EXPECT_EQ(recent.text(), "32 tokens/s");
  for (int step = 0; step < 100; ++step) recent.add(4, 1);
  EXPECT_EQ(recent.text(), "64 tokens/s");
}

class ExceededCeiling : public ::testing::Test {
 protected:
  ExceededCeiling() { replace_file(files_, file_, "measured on a busy machine"); }
  /// That of a rank that trains 4 samples a second at best.
  DeviceSpeed best() const {
    return {.peak_flops = 2 * flops_of(config_, 4), .ceiling_flops = flops_of(config_, 4), .cache_file = file_};
  }

  PosixFileSystem files_;
  testing::ScratchDirectory scratch_;
  std::string file_ = scratch_.file("speed.json");
  PretrainConfig config_ = small_config(gpt2_like());
};

TEST_F(ExceededCeiling, IsDroppedWithItsFileSoThatTheNextRunMeasuresAgain) {
  RecentSpeed recent(config_, best());
  recent.add(4, 0.01);
  EXPECT_EQ(recent.drop_exceeded_ceiling(files_), "") << "the first step counts for nothing";
  recent.add(4, 1.0 / 2.2);
  const std::string text = recent.drop_exceeded_ceiling(files_);
  EXPECT_NE(text.find("220 % of the measured kernel ceiling"), std::string::npos) << text;
  EXPECT_NE(text.find(file_), std::string::npos) << text;
  EXPECT_FALSE(files_.exists(file_));
  EXPECT_FALSE(recent.best().ceiling_flops || recent.best().peak_flops) << "110 % of the peak";
  EXPECT_EQ(recent.text().find("ceiling"), std::string::npos);
  EXPECT_EQ(recent.drop_exceeded_ceiling(files_), "") << "once";
}

TEST_F(ExceededCeiling, IsNoCeilingThatNoiseExceedsAndNotThatOfTheFlag) {
  RecentSpeed close(config_, best());
  for (int step = 0; step < 3; ++step) close.add(4, 1.0 / 1.05);
  EXPECT_EQ(close.drop_exceeded_ceiling(files_), "");
  EXPECT_TRUE(close.best().ceiling_flops);
  config_.logging.kernel_ceiling = 1e-9;
  RecentSpeed given(config_, best());
  for (int step = 0; step < 3; ++step) given.add(4, 0.1);
  EXPECT_EQ(given.drop_exceeded_ceiling(files_), "");
  EXPECT_TRUE(files_.exists(file_));
}

}  // namespace
}  // namespace megatron
