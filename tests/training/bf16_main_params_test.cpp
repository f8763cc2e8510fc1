// Weights in bf16 that are stepped themselves, rounded stochastically: 8 bytes a parameter.
#include <gtest/gtest.h>

#include <cmath>

#include "megatron/training/checkpoint/snapshot.h"
#include "tests/testing/tolerance.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using testing::gpt2_like;
using testing::llama_like;
using testing::optimizer_state_of;
using testing::small_config;
using testing::tolerance;
using testing::train;
using testing::weights_of;

constexpr const char* kEightBytes =
    " --bf16 --use-precision-aware-optimizer --main-params-dtype bf16 --main-grads-dtype bf16 --exp-avg-dtype bf16"
    " --exp-avg-sq-dtype bf16";

const std::vector<std::string>& models() {
  static const std::vector<std::string> both = {gpt2_like(), llama_like()};
  return both;
}

struct Outcome {
  std::vector<double> losses, weights, state;
  bool operator==(const Outcome&) const = default;
};
Outcome outcome_of(const std::string& words, int64_t num_steps) {
  Trainer trainer(small_config(words), {});
  Outcome outcome{train(trainer, 0, num_steps), {}, {}};
  outcome.weights = weights_of(trainer);
  outcome.state = optimizer_state_of(trainer);
  return outcome;
}

TEST(Bf16MainParams, HoldEightBytesAParameter) {
  for (const std::string& model : models())
    for (const char* optimizer : {"", " --use-distributed-optimizer"}) {
      Trainer trainer(small_config(model + kEightBytes + optimizer), {});
      int64_t num_parameters = 0, bytes = 0;
      for (Parameter* parameter : trainer.model().parameters()) {
        num_parameters += parameter->shape().num_elements();
        bytes += parameter->value().bytes() + parameter->main_grad().bytes();
      }
      for (const OptimizerState& state : trainer.optimizer().states()) {
        EXPECT_TRUE(state.steps_weights());
        EXPECT_FALSE(state.remainder.defined());
        bytes += state.exp_avg.bytes() + state.exp_avg_sq.bytes();
      }
      EXPECT_EQ(bytes, 8 * num_parameters);
    }
}

TEST(Bf16MainParams, HaveTheSameBitsInEveryRunAndWithTheDistributedOptimizer) {
  for (const std::string& model : models()) {
    const std::string words = model + kEightBytes;
    const Outcome expected = outcome_of(words, 5);
    EXPECT_EQ(outcome_of(words, 5), expected);
    EXPECT_EQ(outcome_of(words + " --use-distributed-optimizer", 5), expected);
    EXPECT_EQ(outcome_of(words + " --recompute-granularity selective", 5), expected);
  }
}

/// The random numbers of a step hang on its number, and a checkpoint has all that it reads.
TEST(Bf16MainParams, ResumeBitForBit) {
  for (const std::string& model : models())
    for (const char* optimizer : {"", " --use-distributed-optimizer"}) {
      const PretrainConfig config = small_config(model + kEightBytes + optimizer);
      Trainer straight(config, {}), resumed(config, {});
      train(straight, 0, 3);
      TrainerSnapshot snapshot;
      snapshot.take(straight);
      snapshot.restore(resumed);
      EXPECT_EQ(weights_of(resumed), weights_of(straight));
      EXPECT_EQ(train(resumed, 3, 6), train(straight, 3, 6));
      EXPECT_EQ(weights_of(resumed), weights_of(straight));
      EXPECT_EQ(optimizer_state_of(resumed), optimizer_state_of(straight));
    }
}

constexpr double kLearningRate = 1e-4, kInitialSize = 0.02;
constexpr int64_t kSteps = 400, kLast = 40;

/// Mean of the last losses of a run whose updates are mostly below half the distance of neighbours in bf16.
double last_loss(const std::string& words, bool forgets_masters = false) {
  Trainer trainer(small_config(fmt::format("{} --lr {} --init-method-std {} --adam-beta2 0.95 --weight-decay 0.1",
                                           words, kLearningRate, kInitialSize)),
                  {});
  double sum = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const double loss = train(trainer, step, step + 1)[0];
    if (step >= kSteps - kLast) sum += loss / kLast;
    // Masters that begin each step as copies of the weights are none: what rounding to nearest cuts off is lost.
    if (forgets_masters) trainer.optimizer().reload_main_params(trainer.context());
  }
  return sum;
}

/// Adam moves a weight by about the learning rate in a step. An update below the distance d of neighbours in bf16 is
/// rounded to 0 or d with its mean kept, so with a variance of d times the update: in all of d times the way of the
/// weight. A loss that falls with the square of what is left of the way loses that variance over the way's square: d /
/// way, where d is eps times the weight.
double share_lost_to_noise() { return tolerance(DType::kBFloat16, 1, kInitialSize / (kLearningRate * kSteps)); }

TEST(Bf16MainParams, TrainAsFp32OnesWhereRoundingToNearestFallsBehind) {
  for (const std::string& model : models()) {
    const double fp32 = last_loss(model + " --bf16"), stochastic = last_loss(model + kEightBytes);
    const double nearest = last_loss(model + " --bf16", true);
    const double progress = std::log(61) - fp32;
    EXPECT_GT(progress, 0);
    EXPECT_NEAR(stochastic, fp32, share_lost_to_noise() * progress);
    EXPECT_GT(nearest, fp32 + share_lost_to_noise() * progress);
  }
}

}  // namespace
}  // namespace megatron
