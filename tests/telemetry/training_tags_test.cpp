#include "megatron/telemetry/training_tags.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

using Values = std::vector<NamedValue>;

TEST(IterationTags, AreMegatronsWithATwinOverSamples) {
  IterationScalars scalars;
  scalars.learning_rate = 1e-4;
  scalars.batch_size = 32;
  scalars.losses = {{"lm loss", 2.5}, {"mtp_1 loss", 3.0}};
  scalars.loss_scale = 1.0;
  scalars.world_size = 8;
  scalars.grad_norm = 0.5;
  scalars.num_zeros = 3;
  scalars.params_norm = 20.0;
  const TaggedScalars tags = iteration_tags(scalars);
  EXPECT_EQ(tags.by_iteration, (Values{{"learning-rate", 1e-4},
                                       {"batch-size", 32},
                                       {"lm loss", 2.5},
                                       {"mtp_1 loss", 3.0},
                                       {"loss-scale", 1.0},
                                       {"world-size", 8},
                                       {"grad-norm", 0.5},
                                       {"num-zeros", 3},
                                       {"params-norm", 20.0}}));
  EXPECT_EQ(tags.by_samples, (Values{{"learning-rate vs samples", 1e-4},
                                     {"batch-size vs samples", 32},
                                     {"lm loss vs samples", 2.5},
                                     {"mtp_1 loss vs samples", 3.0},
                                     {"loss-scale vs samples", 1.0},
                                     {"world-size vs samples", 8},
                                     {"grad-norm vs samples", 0.5},
                                     {"num-zeros vs samples", 3},
                                     {"params-norm vs samples", 20.0}}));
}

TEST(IterationTags, MemoryAndLayersHaveNoTwin) {
  IterationScalars scalars;
  scalars.batch_size = 1;
  scalars.skipped_samples = 4;
  scalars.memory =
      DeviceMemoryUse{.allocated_bytes = 1, .max_allocated_bytes = 2, .reserved_bytes = 3, .max_reserved_bytes = 4};
  scalars.num_allocations = 9;
  scalars.max_attention_logit = 11.5;
  scalars.extra = {{"moe/z_loss_layer_0", 0.25}};
  const TaggedScalars tags = iteration_tags(scalars);
  EXPECT_EQ(tags.by_iteration, (Values{{"batch-size", 1},
                                       {"skipped-train-samples", 4},
                                       {"mem-reserved-bytes", 3},
                                       {"mem-allocated-bytes", 1},
                                       {"mem-max-allocated-bytes", 2},
                                       {"mem-allocated-count", 9},
                                       {"max_attention_logit", 11.5},
                                       {"moe/z_loss_layer_0", 0.25}}));
  EXPECT_EQ(tags.by_samples, (Values{{"batch-size vs samples", 1}}));
}

TEST(IntervalTags, EndTimersInTime) {
  EXPECT_EQ(interval_tags(0.5, 100.0, Values{{"optimizer", 0.01}}).by_iteration,
            (Values{{"iteration-time", 0.5}, {"throughput", 100.0}, {"optimizer-time", 0.01}}));
}

TEST(SpeedTags, AreTheKnownOnes) {
  TrainingLogValues values;
  values.tokens_per_second = 12300;
  EXPECT_EQ(speed_tags(values).by_iteration, (Values{{"tokens-per-second", 12300}}));
  values.mfu_percent = 41.5;
  values.kernel_ceiling_percent = 87.5;
  EXPECT_EQ(speed_tags(values).by_iteration,
            (Values{{"tokens-per-second", 12300}, {"mfu-percent", 41.5}, {"kernel-ceiling-percent", 87.5}}));
  EXPECT_TRUE(speed_tags(values).by_samples.empty());
}

TEST(ValidationTags, NameTheSetAndAddPerplexityOnRequest) {
  const Values losses{{"lm loss", 0.0}};
  EXPECT_EQ(validation_tags(losses, "-wiki", false).by_iteration, (Values{{"lm loss validation-wiki", 0.0}}));
  const TaggedScalars tags = validation_tags(losses, "", true);
  EXPECT_EQ(tags.by_iteration, (Values{{"lm loss validation", 0.0}, {"lm loss validation ppl", 1.0}}));
  EXPECT_EQ(tags.by_samples,
            (Values{{"lm loss validation vs samples", 0.0}, {"lm loss validation ppl vs samples", 1.0}}));
}

}  // namespace
}  // namespace megatron
