// Mixtures of experts on layouts of ranks: what one rank gives.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "megatron/training/checkpoint/checkpointer.h"
#include "megatron/training/expert_metrics.h"
#include "tests/parallel/layout_checkpoint.h"
#include "tests/parallel/layout_run.h"
#include "tests/testing/test_device.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr int kSteps = 6;
constexpr const char* kSize =
    " --num-layers 4 --global-batch-size 8 --micro-batch-size 1 --lr 1e-3 --num-experts 4 --moe-ffn-hidden-size 24";
constexpr const char* kDouble = " --fp64";

/// A loss over micro-batches, softmax, all layers.
std::string mixtral_like(const std::string& precision = kDouble) {
  return llama_like(kSize + precision + " --moe-aux-loss-coeff 1e-2 --moe-z-loss-coeff 1e-3");
}
/// An expert bias, groups, shared experts, a loss over sequences, the first layer dense.
std::string deepseek_like() {
  return llama_like(std::string(kSize) + kDouble +
                    " --moe-layer-freq [0]+[1]*3 --moe-router-score-function sigmoid --moe-router-enable-expert-bias"
                    " --moe-router-num-groups 2 --moe-router-group-topk 1 --moe-router-topk-scaling-factor 2.5"
                    " --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-3"
                    " --moe-shared-expert-intermediate-size 12 --moe-shared-expert-gate");
}
/// With biases.
std::string gpt2_with_experts(const std::string& extra) { return gpt2_like(std::string(kSize) + kDouble + extra); }

std::vector<std::string> models() {
  return {mixtral_like(), deepseek_like(), gpt2_with_experts(" --moe-expert-capacity-factor 1.0"),
          gpt2_with_experts(" --moe-layer-freq 2 --moe-router-load-balancing-type quantile_balancing"
                            " --moe-router-quantile-balancing-ema 0.5")};
}

TEST(Experts, TrainAsOneRankDoesOnDataAndPipelineParallelRanks) {
  const std::vector<Layout> layouts = {
      {" --pipeline-model-parallel-size 2", 4},
      {"", 4},
      {" --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-num-buckets 3", 2},
      {" --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2", 2},
      {" --pipeline-model-parallel-size 4 --pipeline-schedule zb-h1", 4},
      {" --pipeline-model-parallel-size 2 --pipeline-schedule zb-v --use-distributed-optimizer", 4}};
  for (const std::string& model : models()) {
    const Curve expected = train_layout(model, 1, kSteps);
    for (const Layout& layout : layouts)
      expect_same_curve(train_layout(model + layout.words, layout.num_ranks, kSteps), expected, model + layout.words);
  }
}

TEST(Experts, WithMeansOfMicroBatchesTrainAsOneRankDoesToo) {
  const std::string model = mixtral_like() + " --no-calculate-per-token-loss";
  expect_same_curve(train_layout(model + " --pipeline-model-parallel-size 2", 4, kSteps),
                    train_layout(model, 1, kSteps), model);
}

/// The counts of all ranks enter the loss of each micro-batch: a rank with micro-batches of two samples and two ranks
/// with micro-batches of one count the same tokens. As in Megatron each rank's loss has the tokens of all ranks in its
/// denominator, and gradients are averaged: twice the ranks, half the weight.
TEST(Experts, TheGlobalLossCountsTheTokensOfAllReplicas) {
  const std::string model =
      llama_like(std::string(kSize) + kDouble + " --moe-router-load-balancing-type global_aux_loss");
  expect_same_curve(train_layout(model + " --moe-aux-loss-coeff 0.2", 2, kSteps),
                    train_layout(model + " --moe-aux-loss-coeff 0.1 --micro-batch-size 2", 1, kSteps), model);
}

struct ZLossStep {
  double z_loss = 0;                        // as in the log
  double tokens_of_a_valid_one = 0;         // masked tokens count for the router
  std::map<std::string, double> gradients;  // of element 1 of each weight
};
/// A step with element 1 of one weight moved.
ZLossStep step_with(const std::string& words, const std::string& moved = "", double by = 0, int num_ranks = 1) {
  ZLossStep of_rank_0;
  run_layout(words, num_ranks, [&](Trainer& trainer) {
    ZLossStep step;
    for (Parameter* parameter : trainer.model().parameters())
      if (parameter->name() == moved) parameter->value().data<double>()[1] += by;
    const auto batches = batches_of(trainer.config(), 0);
    const TrainStepResult result = trainer.train_step(MicroBatches(batches));
    for (const NamedValue& loss : mean_auxiliary_losses(trainer.config(), result)) step.z_loss = loss.value;
    step.tokens_of_a_valid_one = 8.0 * 16 / static_cast<double>(result.loss.num_tokens);
    for (Parameter* parameter : trainer.model().parameters())
      step.gradients[parameter->name()] = values_of(parameter->main_grad()).at(1);
    if (trainer.groups().world.rank() == 0) of_rank_0 = step;
  });
  return of_rank_0;
}

/// The z-loss is smooth: what it adds to gradients is its derivative, by the log's own values, times the coefficient
/// and the number of layers over which the log has the mean.
TEST(Experts, AddToGradientsWhatTheLogHasTimesTheCoefficient) {
  for (const char* mode : {"", " --no-calculate-per-token-loss"}) {
    const std::string model =
        gpt2_with_experts(std::string(" --clip-grad 0 --hidden-dropout 0 --attention-dropout 0") + mode);
    const std::string with_loss = model + " --moe-z-loss-coeff 0.3";
    const ZLossStep with = step_with(with_loss), without = step_with(model + " --moe-z-loss-coeff 0");
    for (const char* name : {"decoder.layers.3.mlp.router.weight", "decoder.layers.1.mlp.router.bias",
                             "decoder.layers.0.mlp.experts.experts.linear_fc2.weight"}) {
      constexpr double kDelta = 1e-5;
      const double slope =
          (step_with(with_loss, name, kDelta).z_loss - step_with(with_loss, name, -kDelta).z_loss) / (2 * kDelta);
      const double weight = *mode ? 1 : with.tokens_of_a_valid_one;
      EXPECT_NEAR(with.gradients.at(name) - without.gradients.at(name), 0.3 * 4 * weight * slope, 1e-8) << name << mode;
      EXPECT_GT(std::abs(slope), 1e-6) << name;
    }
  }
}

/// Whatever the main loss is averaged over: what auxiliary losses add to gradients does not depend on how sequences are
/// cut.
TEST(Experts, AddToGradientsOnContextParallelRanksWhatTheyAddOnOneRank) {
  for (const char* mode : {"", " --no-calculate-per-token-loss"}) {
    const std::string model = llama_like(std::string(kSize) + kDouble + " --clip-grad 0 " + mode);
    const auto added = [&](const std::string& layout, int num_ranks) {
      std::map<std::string, double> sums =
          step_with(model +
                        " --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.3 --moe-z-loss-coeff "
                        "0.2" +
                        layout,
                    "", 0, num_ranks)
              .gradients;
      for (auto& [name, sum] : sums) sum -= step_with(model + layout, "", 0, num_ranks).gradients.at(name);
      return sums;
    };
    const std::map<std::string, double> expected = added("", 1);
    for (const auto& [name, sum] : added(" --context-parallel-size 2", 2))
      EXPECT_NEAR(sum, expected.at(name), 1e-9) << name << mode;
    EXPECT_GT(std::abs(expected.at("decoder.layers.1.mlp.router.weight")), 1e-5);
  }
}

/// Values of each metric of a step, on one rank.
std::map<std::string, std::vector<double>> metrics_of(const std::string& words, int num_ranks) {
  std::map<std::string, std::vector<double>> metrics;
  std::mutex mutex;
  run_layout(words, num_ranks, [&](Trainer& trainer) {
    const auto batches = batches_of(trainer.config(), 0, trainer.groups().dp.rank());
    const TrainStepResult result = trainer.train_step(MicroBatches(batches));
    const std::lock_guard lock(mutex);
    for (const StepMetric& metric : result.metrics) metrics[metric.name] = metric.values;
    EXPECT_EQ(result.num_micro_batches, 8);
  });
  return metrics;
}

TEST(Experts, OfLayersForFurtherTokensTrainAndCountAsOnOneRank) {
  const std::string model = deepseek_like() + " --mtp-num-layers 2 --moe-per-layer-logging";
  const Curve one_rank = train_layout(model, 1, kSteps);
  const Layout layouts[] = {{" --pipeline-model-parallel-size 2", 4},
                            {" --expert-model-parallel-size 2 --use-distributed-optimizer", 2},
                            {" --recompute-granularity selective --recompute-modules moe", 1}};
  for (const Layout& layout : layouts)
    expect_same_curve(train_layout(model + layout.words, layout.num_ranks, kSteps), one_rank, layout.words);
  auto metrics = metrics_of(model + layouts[0].words, layouts[0].num_ranks);
  const std::vector<double>& tokens = metrics["tokens per expert"];
  ASSERT_EQ(tokens.size(), (4 + 2) * 4);
  for (const size_t layer : {1, 3, 4, 5}) {
    double sum = 0;
    for (size_t e = 0; e < 4; ++e) sum += tokens[4 * layer + e];
    EXPECT_EQ(sum, 8 * 16 * 2) << "layer " << layer << ": samples x tokens x topk";
    EXPECT_GT(metrics["seq_load_balancing_loss"].at(layer), 0);
  }
  const ScratchDirectory first, second;
  continue_to(model + saving(first), {"", 1}, 2);
  continue_to(model + loading(first) + saving(second), layouts[1], 2);
  EXPECT_EQ(state_of(model + loading(second)), state_of(model + loading(first)));
}

TEST(Experts, RecomputeChangesNoBit) {
  for (const std::string& model : models()) {
    const Curve expected = train_layout(model, 1, kSteps);
    for (const char* recompute : {" --recompute-granularity selective --recompute-modules moe",
                                  " --recompute-granularity selective --recompute-modules moe_act",
                                  " --recompute-granularity selective --recompute-modules shared_experts mlp moe_act",
                                  " --recompute-granularity selective --recompute-modules moe layernorm core_attn",
                                  " --recompute-granularity full --recompute-method uniform --recompute-num-layers 2"})
      EXPECT_EQ(train_layout(model + recompute, 1, kSteps), expected) << model << recompute;
  }
}

TEST(Experts, MetricsOfAllRanksAreThoseOfOneRank) {
  const std::string model = mixtral_like() + " --moe-per-layer-logging";
  auto expected = metrics_of(model, 1), actual = metrics_of(model + " --pipeline-model-parallel-size 2", 4);
  EXPECT_EQ(actual["tokens per expert"], expected["tokens per expert"]);
  double tokens = 0;
  for (const double count : expected["tokens per expert"]) tokens += count;
  EXPECT_EQ(tokens, 4 * 8 * 16 * 2) << "layers x samples x tokens x topk";
  for (const char* name : {"load_balancing_loss", "z_loss"}) {
    ASSERT_EQ(actual[name].size(), 4) << name;
    for (size_t layer = 0; layer < 4; ++layer)
      EXPECT_NEAR(actual[name][layer], expected[name].at(layer), 1e-11) << name;
  }
}

/// Moved once a step, by the rate, whatever the number of micro-batches and ranks; not in evaluation.
TEST(Experts, TheExpertBiasMovesOnceAStepAndNotInEvaluation) {
  for (const int num_ranks : {1, 2, 4})
    run_layout(deepseek_like(), num_ranks, [](Trainer& trainer) {
      const auto bias_of = [&] {
        std::vector<double> bias;
        for (const Parameter* parameter : trainer.model().parameters())
          if (parameter->name().ends_with(".expert_bias")) {
            const std::vector<double> values = values_of(parameter->value());
            bias.insert(bias.end(), values.begin(), values.end());
          }
        return bias;
      };
      const auto batches = batches_of(trainer.config(), 0, trainer.groups().dp.rank());
      EXPECT_EQ(bias_of(), std::vector<double>(12, 0.0));
      trainer.evaluate(MicroBatches(batches));
      EXPECT_EQ(bias_of(), std::vector<double>(12, 0.0));
      trainer.train_step(MicroBatches(batches));
      const std::vector<double> moved = bias_of();
      for (const double value : moved) EXPECT_TRUE(value == 0 || std::abs(std::abs(value) - 1e-3) < 1e-9) << value;
      EXPECT_NE(moved, std::vector<double>(12, 0.0));
      trainer.evaluate(MicroBatches(batches));
      EXPECT_EQ(bias_of(), moved);
    });
}

/// The loss of the first step of a run that begins with the weights of a checkpoint. @param router_weight  of all
/// routers, instead of their own
double loss_after_loading(const std::string& words, const Layout& layout, std::optional<double> router_weight = {}) {
  double loss = 0;
  run_layout(words + layout.words, layout.num_ranks, [&](Trainer& trainer) {
    PosixFileSystem files;
    EXPECT_TRUE(Checkpointer(files, trainer.config(), {}).load(trainer));
    EXPECT_EQ(trainer.progress().iteration, 0);
    for (Parameter* parameter : trainer.model().parameters())
      if (router_weight && parameter->name().ends_with("router.weight"))
        std::fill_n(parameter->value().data<double>(), parameter->value().num_elements(), *router_weight);
    const double own = trainer.train_step(batches_of(trainer.config(), 0, trainer.groups().dp.rank())).loss.mean();
    if (trainer.groups().world.rank() == 0) loss = own;
  });
  return loss;
}

/// Experts that together are the dense feed-forward give its output where their probabilities add up to 1, or where all
/// are alike, and where the activation is homogeneous.
TEST(ExpertsCheckpoint, AnUpcycledModelGivesTheLossOfItsDenseModel) {
  const std::string sizes = " --num-layers 2 --global-batch-size 8 --micro-batch-size 1 --lr 1e-3 --fp64";
  const std::string swiglu = llama_like(sizes);
  const std::string squared_relu =
      gpt2_like(sizes + " --squared-relu --disable-bias-linear --hidden-dropout 0 --attention-dropout 0");
  const Layout layouts[] = {{"", 1},
                            {" --expert-model-parallel-size 2 --use-distributed-optimizer", 4},
                            {" --tensor-model-parallel-size 2 --sequence-parallel", 2},
                            {" --pipeline-model-parallel-size 2", 2}};
  for (const std::string& dense : {swiglu, squared_relu}) {
    const ScratchDirectory directory;
    continue_to(dense + saving(directory), {"", 1}, 2);
    const double expected = loss_after_loading(dense + loading(directory) + " --finetune", {"", 1});
    const std::string copies = dense + loading(directory) + " --moe-use-upcycling --num-experts 4 --moe-router-topk 2";
    for (const Layout& layout : layouts)
      EXPECT_NEAR(loss_after_loading(copies, layout), expected, 1e-11) << layout.words;
    if (dense == swiglu) continue;
    const std::string slices = dense + loading(directory) +
                               " --moe-use-upcycling --moe-upcycling-granularity 2 --num-experts 8 --moe-router-topk 4";
    for (const Layout& layout : layouts)
      EXPECT_NEAR(loss_after_loading(slices, layout), expected, 1e-11) << layout.words;
    EXPECT_NEAR(loss_after_loading(slices + " --moe-router-pre-softmax", {"", 1}, 0.0), expected, 1e-11);
  }
}

TEST(ExpertsCheckpoint, AResumedRunContinuesBitForBit) {
  for (const std::string& model : models())
    for (const Layout& layout :
         {Layout{"", 1}, Layout{" --pipeline-model-parallel-size 2", 4}, Layout{" --use-distributed-optimizer", 2}}) {
      const ScratchDirectory halves, whole;
      const std::vector<double> expected = continue_to(model + saving(whole), layout, 4);
      continue_to(model + saving(halves), layout, 2);
      const std::vector<double> rest = continue_to(model + loading(halves) + saving(halves), layout, 4);
      EXPECT_EQ(rest, std::vector<double>(expected.begin() + 2, expected.end())) << model << layout.words;
      EXPECT_EQ(state_of(model + loading(halves)), state_of(model + loading(whole))) << model << layout.words;
    }
}

TEST(ExpertsCheckpoint, MovesBetweenLayoutsBitForBit) {
  const std::vector<Layout> layouts = {{"", 1},
                                       {" --pipeline-model-parallel-size 2", 4},
                                       {" --use-distributed-optimizer", 2},
                                       {" --pipeline-model-parallel-size 2 --pipeline-schedule zb-v", 2}};
  for (const std::string& model : {deepseek_like(), mixtral_like(" --bf16")})
    for (size_t i = 0; i < layouts.size(); ++i) {
      const ScratchDirectory first, second;
      continue_to(model + saving(first), layouts[i], 2);
      continue_to(model + loading(first) + saving(second), layouts[(i + 1) % layouts.size()], 2);
      EXPECT_EQ(state_of(model + loading(second)), state_of(model + loading(first))) << model << layouts[i].words;
    }
}

}  // namespace
}  // namespace megatron::testing
