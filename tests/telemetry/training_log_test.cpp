#include "megatron/telemetry/training_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace megatron {
namespace {

using namespace std::chrono_literals;

TrainingLogValues sample() {
  TrainingLogValues v;
  v.time = parse_date_time("2026-08-01 12:34:56").value() + 123456us;
  v.iteration = 100;
  v.train_iterations = 1000;
  v.consumed_samples = 3200;
  v.elapsed_ms_per_iteration = 1234.56;
  v.learning_rate = 1.5e-4;
  v.global_batch_size = 32;
  v.losses = {{"lm loss", 2.3456789}};
  v.loss_scale = 1.0;
  v.grad_norm = 0.98765;
  return v;
}

TEST(TrainingLogLine, IsMegatronsLineExactly) {
  EXPECT_EQ(training_log_line(sample()),
            " [2026-08-01 12:34:56.123456] iteration      100/    1000 | consumed samples:         3200 |"
            " elapsed time per iteration (ms): 1234.6 | learning rate: 1.500000E-04 | global batch size:    32 |"
            " lm loss: 2.345679E+00 | loss scale: 1.0 | grad norm: 0.988 | number of skipped iterations:   0 |"
            " number of nan iterations:   0 |");
}

TEST(TrainingLogLine, HasAllOptionalPiecesInMegatronsOrder) {
  TrainingLogValues v = sample();
  v.skipped_samples = 64;
  v.tflops_per_gpu = 412.34;
  v.energy_joules_per_gpu = 700.12;
  v.power_watts_per_gpu = 567.89;
  v.losses.push_back({"load_balancing_loss", 1.0});
  v.loss_scale = 65536.0;
  v.num_zeros = 9.0;
  v.params_norm = 123.4567;
  v.max_attention_logit = 11.5;
  v.skipped_iterations = 2;
  v.nan_iterations = 1;
  EXPECT_EQ(training_log_line(v),
            " [2026-08-01 12:34:56.123456] iteration      100/    1000 | consumed samples:         3200 |"
            " skipped samples:           64 | elapsed time per iteration (ms): 1234.6 |"
            " throughput per GPU (TFLOP/s/GPU): 412.3 | energy per GPU (J/iter/GPU): 700.1 |"
            " power per GPU (W/GPU): 567.9 | learning rate: 1.500000E-04 | global batch size:    32 |"
            " lm loss: 2.345679E+00 | load_balancing_loss: 1.000000E+00 | loss scale: 65536.0 | grad norm: 0.988 |"
            " num zeros: 9.0 | params norm: 123.457 | max attention logit: 11.500 | number of skipped iterations:   2 |"
            " number of nan iterations:   1 |");
}

TEST(TrainingLogLine, HasOurValuesAfterAllOfMegatrons) {
  TrainingLogValues v = sample();
  v.tflops_per_gpu = 412.34;
  const std::string of_megatron = training_log_line(v);
  v.tokens_per_second = 12345.67;
  v.mfu_percent = 41.66;
  v.kernel_ceiling_percent = 86.06;
  v.repeated_iterations = 3;
  v.data_wait_ms_per_iteration = 0.35;
  EXPECT_EQ(training_log_line(v), of_megatron +
                                      " number of repeated iterations:   3 | tokens per second: 12345.7 | MFU (%): "
                                      "41.7 | percent of kernel ceiling: 86.1 | data wait per iteration (ms): 0.3 |");
}

TEST(TrainingLogLine, LeavesOutAbsentValuesAndLossesNotAboveZero) {
  TrainingLogValues v = sample();
  v.learning_rate.reset();
  v.grad_norm.reset();
  v.losses = {{"a", -1.0}, {"b", 0.0}, {"c", std::numeric_limits<double>::quiet_NaN()}};
  EXPECT_EQ(training_log_line(v),
            " [2026-08-01 12:34:56.123456] iteration      100/    1000 | consumed samples:         3200 |"
            " elapsed time per iteration (ms): 1234.6 | global batch size:    32 | loss scale: 1.0 |"
            " number of skipped iterations:   0 | number of nan iterations:   0 |");
}

TEST(ValidationLogBlock, HasDashesOneLongerThanTheLine) {
  const std::string line =
      " validation loss at iteration 1000 | lm loss value: 2.345678E+00 | lm loss PPL: 1.044035E+01 | ";
  const std::string dashes(line.size() + 1, '-');
  EXPECT_EQ(validation_log_block("", "iteration 1000", {{"lm loss", 2.345678}}), dashes + "\n" + line + "\n" + dashes);
}

TEST(ValidationLogBlock, NamesOneOfSeveralSetsAndTheTestRun) {
  const std::string block = validation_log_block("-wiki", "iteration 7 on test set", {{"lm loss", 1.0}});
  EXPECT_NE(block.find(" validation-wiki loss at iteration 7 on test set | lm loss value: 1.000000E+00 |"),
            std::string::npos);
}

TEST(Perplexity, IsCutAtALossOfTwenty) {
  EXPECT_DOUBLE_EQ(perplexity(2.0), std::exp(2.0));
  EXPECT_DOUBLE_EQ(perplexity(1000.0), std::exp(20.0));
}

TEST(PythonFloatText, IsShortestWithAPointForWholeNumbers) {
  EXPECT_EQ(python_float_text(9.0), "9.0");
  EXPECT_EQ(python_float_text(-3.0), "-3.0");
  EXPECT_EQ(python_float_text(0.1), "0.1");
  EXPECT_EQ(python_float_text(12.345678901), "12.345678901");
  EXPECT_EQ(python_float_text(1e16), "1e+16");
  EXPECT_EQ(python_float_text(std::numeric_limits<double>::quiet_NaN()), "nan");
}

}  // namespace
}  // namespace megatron
