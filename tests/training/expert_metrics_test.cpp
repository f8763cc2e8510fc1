#include "megatron/training/expert_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using testing::parse;
using testing::words_of;

/// A model of four layers, of which the second and the fourth have experts.
PretrainConfig config_of(const std::string& words) {
  return parse(words_of("--num-experts 4 --moe-layer-freq [0,1,0,1] --moe-aux-loss-coeff 0.1 " + words));
}

TrainStepResult step() {
  TrainStepResult result;
  result.num_micro_batches = 3;
  result.metrics = {{"lm loss", {7}},
                    {"load_balancing_loss", {0, 6, 0, 3}},
                    {"z_loss", {0, 1.5, 0, 3}},
                    {"tokens per expert", {0, 0, 0, 0, 1, 2, 1, 4, 0, 0, 0, 0, 8, 0, 0, 0}}};
  return result;
}

MATCHER_P2(Is, name, value, "") { return arg.name == name && std::abs(arg.value - value) < 1e-15; }

TEST(ExpertMetrics, AreMeansOverLayersWithExpertsAndMicroBatches) {
  EXPECT_THAT(mean_auxiliary_losses(config_of(""), step()), ElementsAre(Is("load_balancing_loss", 1.5)));
  EXPECT_THAT(mean_auxiliary_losses(config_of("--moe-z-loss-coeff 0.1"), step()),
              ElementsAre(Is("load_balancing_loss", 1.5), Is("z_loss", 0.75)));
  EXPECT_TRUE(mean_auxiliary_losses(parse(), step()).empty());
}

TEST(ExpertMetrics, OfLayersHaveMegatronsTagsAndLoadsOverTheMean) {
  EXPECT_TRUE(expert_metrics_by_layer(config_of(""), step()).empty());
  EXPECT_THAT(expert_metrics_by_layer(config_of("--moe-per-layer-logging"), step()),
              ElementsAre(Is("moe/load_balancing_loss_layer_1", 2.0), Is("moe/max_load_layer_1", 2.0),
                          Is("moe/median_load_layer_1", 1.0), Is("moe/min_load_layer_1", 0.5),
                          Is("moe/load_balancing_loss_layer_3", 1.0), Is("moe/max_load_layer_3", 4.0),
                          Is("moe/median_load_layer_3", 0.0), Is("moe/min_load_layer_3", 0.0)));
}

}  // namespace
}  // namespace megatron
