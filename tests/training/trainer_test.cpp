#include "megatron/training/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "megatron/transformer/qk_clip.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using testing::batches_of;
using testing::gpt2_like;
using testing::gradients_of;
using testing::llama_like;
using testing::optimizer_state_of;
using testing::small_config;
using testing::train;
using testing::weights_of;

Trainer trainer_of(const std::string& words) { return Trainer(small_config(words), {}); }

/// Length of the longest way of sums through a step of these models: there, back, and over the tokens of a step.
constexpr int64_t kPathLength = 2 * 3 * (8 * 32 + 4 * 128) + 64 + 4 * 16;

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0;
  for (double value : expected) largest = std::max(largest, std::abs(value));
  const double bound = megatron::testing::tolerance(DType::kFloat64, kPathLength, largest);
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], bound) << "element " << i;
}

struct TrainerOutcome {
  std::vector<double> losses, weights, state;
  bool operator==(const TrainerOutcome&) const = default;
};
TrainerOutcome trainer_outcome_of(const std::string& words, int64_t num_steps) {
  Trainer trainer = trainer_of(words);
  TrainerOutcome outcome{train(trainer, 0, num_steps), {}, {}};
  outcome.weights = weights_of(trainer);
  outcome.state = optimizer_state_of(trainer);
  return outcome;
}

const std::vector<std::string>& trained_models() {
  static const std::vector<std::string> both = {gpt2_like(), llama_like()};
  return both;
}

/// The main parameters of each state.
std::vector<std::vector<double>> mains_of(Trainer& trainer) {
  std::vector<std::vector<double>> mains;
  for (const OptimizerState& state : trainer.optimizer().states())
    mains.push_back(megatron::testing::values_of(trainer.optimizer().main_params(trainer.context(), state)));
  return mains;
}

TEST(Trainer, QkClipScalesMainParamsAndWeightsOfHeadsWithLargeLogits) {
  for (const std::string form :
       {"", " --bf16", " --bf16 --use-precision-aware-optimizer --use-distributed-optimizer",
        " --bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"}) {
    const std::string words = llama_like(form + " --init-method-std 0.5");
    Trainer plain = trainer_of(words + " --log-max-attention-logit");
    Trainer clipped = trainer_of(words + " --qk-clip --qk-clip-threshold 1 --qk-clip-alpha 0.3");
    const TrainStepResult step = plain.train_step(MicroBatches(batches_of(plain.config(), 0)));
    clipped.train_step(MicroBatches(batches_of(clipped.config(), 0)));
    const auto found = std::ranges::find(step.metrics, kMaxAttentionLogits, &StepMetric::name);
    ASSERT_NE(found, step.metrics.end());
    const std::vector<ScaledRows> scaled = clipped.model().clipped_rows(found->values);
    EXPECT_FALSE(scaled.empty());
    std::vector<std::vector<double>> expected = mains_of(plain);
    const std::vector<OptimizerState>& states = clipped.optimizer().states();
    for (const ScaledRows& rows : scaled)
      for (size_t i = 0; i < states.size(); ++i) {
        if (states[i].parameter != rows.parameter) continue;
        const int64_t width = rows.parameter->shape()[1];
        for (int64_t e = rows.begin * width; e < rows.end * width; ++e) {
          double& value = expected[i].at(static_cast<size_t>(e - states[i].begin));
          value = static_cast<float>(rows.factor) * static_cast<float>(value);
        }
      }
    const std::vector<std::vector<double>> actual = mains_of(clipped);
    EXPECT_EQ(actual, expected) << form;
    clipped.optimizer().copy_main_to_model_params(clipped.context());
    const std::vector<double> rounded = weights_of(clipped);
    EXPECT_NE(rounded, weights_of(plain)) << form;
  }
}

int64_t optimizer_bytes(const std::string& words) {
  Trainer trainer = trainer_of(words);
  int64_t bytes = 0;
  for (const OptimizerState& state : trainer.optimizer().states())
    for (const Tensor* tensor : {&state.main, &state.remainder, &state.exp_avg, &state.exp_avg_sq})
      if (tensor->defined()) bytes += tensor->bytes();
  return bytes;
}

TEST(Trainer, WithMainParamsInTwoHalvesTrainsAsWithWholeOnes) {
  for (const std::string& model : trained_models()) {
    const std::string whole = model + " --bf16 --use-distributed-optimizer";
    const std::string halves = whole + " --use-precision-aware-optimizer";
    const std::string low = halves + " --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16";
    const TrainerOutcome expected = trainer_outcome_of(whole, 10), actual = trainer_outcome_of(halves, 10);
    // Until the first step has been taken there is no difference; then weights at ties are rounded the other way.
    EXPECT_EQ(actual.losses[0], expected.losses[0]);
    for (const std::string& words : {halves, low, low + " --main-grads-dtype bf16"}) {
      const TrainerOutcome other = trainer_outcome_of(words, 10);
      for (size_t i = 0; i < expected.losses.size(); ++i)
        EXPECT_NEAR(other.losses[i], expected.losses[i], epsilon(DType::kBFloat16) * expected.losses[i])
            << words << " step " << i + 1;
    }
    const int64_t num_parameters = optimizer_bytes(whole) / 12;
    EXPECT_EQ(optimizer_bytes(halves), 10 * num_parameters);
    EXPECT_EQ(optimizer_bytes(low), 6 * num_parameters);
  }
}

TEST(Trainer, RecomputeChangesNoBit) {
  const std::vector<std::string> ways = {
      " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
      " --recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
      " --recompute-granularity full --recompute-method block --recompute-num-layers 2",
      " --recompute-granularity selective",
      " --recompute-granularity selective --recompute-modules layernorm",
      " --recompute-granularity selective --recompute-modules mlp",
      " --recompute-granularity selective --recompute-modules core_attn layernorm mlp"};
  for (const std::string& model : trained_models())
    for (const char* precision : {"", " --bf16"}) {
      const TrainerOutcome plain = trainer_outcome_of(model + precision, 2);
      for (const std::string& way : ways) EXPECT_EQ(trainer_outcome_of(model + precision + way, 2), plain) << way;
    }
}

TEST(Trainer, RecomputeSavesMemory) {
  const auto peak = [](const std::string& words) {
    Trainer trainer = trainer_of(words);
    train(trainer, 0, 1);
    return trainer.device().arena.amount(MemoryUse::kActivations).peak;
  };
  for (const std::string& model : trained_models()) {
    const int64_t plain = peak(model);
    EXPECT_LT(peak(model + " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"), plain);
    EXPECT_LT(peak(model + " --recompute-granularity selective --recompute-modules mlp"), plain);
  }
}

TEST(Trainer, AccumulatesTheGradientOfTheWholeBatchHoweverItIsCut) {
  for (const std::string& model : trained_models()) {
    const std::string words = model + " --fp64 --optimizer sgd";
    Trainer whole = trainer_of(words + " --micro-batch-size 4");
    const std::vector<double> losses = train(whole, 0, 1), gradients = gradients_of(whole);
    train(whole, 1, 3);
    for (const char* size : {"1", "2"}) {
      Trainer cut = trainer_of(words + " --micro-batch-size " + size);
      expect_near(train(cut, 0, 1), losses);
      expect_near(gradients_of(cut), gradients);
      train(cut, 1, 3);
      expect_near(weights_of(cut), weights_of(whole));
    }
  }
}

TEST(Trainer, WithoutPerTokenLossEveryMicroBatchWeighsTheSame) {
  const std::string words = gpt2_like("--fp64 --no-calculate-per-token-loss --hidden-dropout 0 --attention-dropout 0");
  Trainer together = trainer_of(words), first = trainer_of(words), second = trainer_of(words);
  std::vector<MicroBatch<int64_t>> batches = batches_of(together.config(), 0);
  for (size_t i = 0; i < 10; ++i) batches[1].num_valid_tokens -= std::exchange(batches[1].loss_mask[i], 0.0F) != 0;
  together.train_step(batches);
  first.train_step(std::span(batches).subspan(0, 1));
  second.train_step(std::span(batches).subspan(1, 1));
  std::vector<double> mean = gradients_of(first);
  const std::vector<double> other = gradients_of(second);
  for (size_t i = 0; i < mean.size(); ++i) mean[i] = (mean[i] + other[i]) / 2;
  expect_near(gradients_of(together), mean);
}

TEST(Trainer, PackedDocumentsTrainLikeSequencesOfTheirOwn) {
  const std::vector<int64_t> tokens = {7, 12, 3, 44, 9, 60, 1, 1, 23, 31, 8, 19, 55, 4, 2, 38, 17};
  const std::string off = " --fp64 --hidden-dropout 0 --attention-dropout 0 --reset-attention-mask";
  const std::vector<std::string> cases = {
      gpt2_like(off + " --reset-position-ids"), llama_like(off + " --reset-position-ids"),
      llama_like(off)};  // rotations are relative: where a document begins is the same
  for (const std::string& words : cases) {
    Trainer packed = trainer_of(words), apart = trainer_of(words);
    const std::vector<MicroBatch<int64_t>> one = {testing::sample_of(tokens, {5, 11})};
    std::vector<MicroBatch<int64_t>> three;
    for (const auto& [begin, end] : {std::pair{0, 5}, {5, 11}, {11, 16}})
      three.push_back(testing::sample_of({tokens.begin() + begin, tokens.begin() + end + 1}, {}));
    const TrainStepResult expected = apart.train_step(three), actual = packed.train_step(one);
    expect_near({actual.loss.sum}, {expected.loss.sum});
    expect_near(gradients_of(packed), gradients_of(apart));
  }
}

TEST(Trainer, EvaluationDropsNothingAndChangesNothing) {
  Trainer trainer = trainer_of(gpt2_like("--fp64")),
          without = trainer_of(gpt2_like("--fp64 --hidden-dropout 0 --attention-dropout 0"));
  const auto batches = batches_of(trainer.config(), 5);
  const std::vector<double> weights = weights_of(trainer);
  const LossSum loss = trainer.evaluate(batches), again = trainer.evaluate(batches);
  EXPECT_EQ(loss.sum, again.sum);
  EXPECT_EQ(loss.sum, without.train_step(batches).loss.sum);
  EXPECT_NE(loss.sum, trainer.train_step(batches).loss.sum);
  Trainer fresh = trainer_of(gpt2_like("--fp64"));
  EXPECT_EQ(weights_of(fresh), weights);
  fresh.train_step(batches);
  EXPECT_EQ(weights_of(trainer), weights_of(fresh));
}

TEST(Trainer, LearnsInEveryPrecision) {
  for (const std::string& model : trained_models())
    for (const char* precision :
         {"", " --bf16", " --fp16 --initial-loss-scale 65536", " --fp64", " --bf16 --fp32-residual-connection"}) {
      Trainer trainer = trainer_of(model + precision);
      const std::vector<double> losses = train(trainer, 0, 40);
      EXPECT_NEAR(losses[0], std::log(61), 0.5) << precision;
      EXPECT_LT(losses.back(), 0.75 * losses[0]) << precision;
    }
}

TEST(Trainer, KeepsMasterWeightsThatRoundToTheWeights) {
  for (const char* precision : {"--bf16", "--fp16"}) {
    Trainer trainer = trainer_of(llama_like(std::string(precision) + " --loss-scale 1024"));
    train(trainer, 0, 3);
    bool has_finer = false;
    for (const OptimizerState& state : trainer.optimizer().states()) {
      ASSERT_EQ(state.main.dtype(), DType::kFloat32);
      const ConstView weight = std::as_const(*state.parameter).value().view();
      dispatch_floating(weight.dtype, [&]<class T>() {
        for (int64_t i = 0; i < weight.num_elements(); ++i) {
          const float master = state.main.data<float>()[i];
          EXPECT_EQ(static_cast<float>(T(master)), static_cast<float>(weight.as<T>()[i]));
          has_finer |= static_cast<float>(weight.as<T>()[i]) != master;
        }
      });
    }
    EXPECT_TRUE(has_finer);
  }
}

TEST(Trainer, SkipsAStepWhoseGradientsOverflow) {
  Trainer trainer = trainer_of(gpt2_like("--fp16 --initial-loss-scale 4294967296 --hysteresis 2"));
  const std::vector<double> weights = weights_of(trainer), state = optimizer_state_of(trainer);
  for (int64_t step = 0; step < 2; ++step) {
    const TrainStepResult result = trainer.train_step(batches_of(trainer.config(), step));
    EXPECT_FALSE(result.optimizer.success);
    EXPECT_TRUE(std::isfinite(result.loss.mean()));
    EXPECT_EQ(weights_of(trainer), weights);
    EXPECT_EQ(optimizer_state_of(trainer), state);
    EXPECT_EQ(trainer.scheduler().num_steps(), 0);
    EXPECT_EQ(trainer.optimizer().num_steps(), 0);
    EXPECT_EQ(trainer.progress().iteration, step + 1);
    EXPECT_EQ(trainer.progress().consumed_train_samples, 4 * (step + 1));
  }
  EXPECT_EQ(trainer.optimizer().loss_scale(), 2147483648.0) << "halved at the second bad step";
  int64_t step = 2;
  while (!trainer.train_step(batches_of(trainer.config(), step)).optimizer.success && step < 40) ++step;
  EXPECT_LT(step, 40);
  EXPECT_NE(weights_of(trainer), weights);
  EXPECT_EQ(trainer.scheduler().num_steps(), 4);
}

/// fp64 weights after one step of plain SGD: w - lr (clip g + decay w).
void expect_sgd_step(const std::string& words, const std::function<double(const Parameter&)>& learning_rate,
                     double decay) {
  Trainer trainer = trainer_of(words);
  std::vector<double> before = weights_of(trainer);
  const TrainStepResult result = trainer.train_step(batches_of(trainer.config(), 0));
  const std::vector<double> gradients = gradients_of(trainer);
  double sum = 0;
  for (double gradient : gradients) sum += gradient * gradient;
  EXPECT_NEAR(result.optimizer.grad_norm, std::sqrt(sum), 1e-12);
  const double clip_grad = trainer.config().optimizer.clip_grad;
  const double clip = clip_grad > 0 ? std::min(1.0, clip_grad / (std::sqrt(sum) + 1e-6)) : 1;
  size_t i = 0;
  for (const Parameter* parameter : trainer.model().parameters()) {
    const double wd = parameter->shape().rank() > 1 ? decay : 0;
    for (int64_t k = 0; k < parameter->shape().num_elements(); ++k, ++i)
      before[i] -= learning_rate(*parameter) * (clip * gradients[i] + wd * before[i]);
  }
  expect_near(weights_of(trainer), before);
}

TEST(Trainer, StepsPlainSgd) {
  const std::string sgd = " --fp64 --optimizer sgd --sgd-momentum 0 --lr 0.5";
  const auto rate = [](const Parameter&) { return 0.5; };
  for (const std::string& model : trained_models()) {
    expect_sgd_step(model + sgd + " --clip-grad 0 --weight-decay 0", rate, 0);
    expect_sgd_step(model + sgd + " --clip-grad 0.1 --weight-decay 0.25", rate, 0.25);
  }
}

TEST(Trainer, GivesWordEmbeddingsAndOutputTheirOwnLearningRate) {
  const std::string sgd = " --fp64 --optimizer sgd --sgd-momentum 0 --lr 0.5 --decoupled-lr 0.125 --weight-decay 0";
  const auto rate = [](const Parameter& parameter) {
    const bool is_own =
        parameter.name() == "embedding.word_embeddings.weight" || parameter.name() == "output_layer.weight";
    return is_own ? 0.125 : 0.5;
  };
  for (const std::string& model : trained_models()) expect_sgd_step(model + sgd, rate, 0);
}

TEST(Trainer, CountsZeroGradients) {
  Trainer trainer = trainer_of(gpt2_like("--log-num-zeros-in-grad"));
  const auto result = trainer.train_step(batches_of(trainer.config(), 0));
  const std::vector<double> gradients = gradients_of(trainer);
  EXPECT_EQ(result.optimizer.num_zeros.value(), std::count(gradients.begin(), gradients.end(), 0.0) - 3 * 32)
      << "but for three padding rows of the vocabulary";
}

TEST(Trainer, SharesNothingWithAnother) {
  const std::string words = gpt2_like(), others = llama_like("--bf16 --seed 5");
  const TrainerOutcome alone = trainer_outcome_of(words, 4), other_alone = trainer_outcome_of(others, 4);
  Trainer a = trainer_of(words), b = trainer_of(others);
  for (int64_t step = 0; step < 4; ++step) {
    EXPECT_EQ(train(a, step, step + 1)[0], alone.losses[static_cast<size_t>(step)]);
    EXPECT_EQ(train(b, step, step + 1)[0], other_alone.losses[static_cast<size_t>(step)]);
  }
  EXPECT_EQ(weights_of(a), alone.weights);
  EXPECT_EQ(weights_of(b), other_alone.weights);

  TrainerOutcome first, second;
  std::thread thread([&] { first = trainer_outcome_of(words, 4); });
  second = trainer_outcome_of(others, 4);
  thread.join();
  EXPECT_EQ(first, alone);
  EXPECT_EQ(second, other_alone);
}

TEST(Trainer, NormOfParametersIsThatOfTheMasterWeights) {
  Trainer trainer = trainer_of(gpt2_like("--fp64"));
  double sum = 0;
  for (const Parameter* parameter : trainer.model().parameters()) {
    const Tensor& value = parameter->value();
    const int64_t rows = parameter->options().shard.unpadded_rows, size = value.num_elements();
    const int64_t num_counted = rows > 0 ? size / value.size(0) * rows : size;
    for (int64_t i = 0; i < num_counted; ++i) sum += value.data<double>()[i] * value.data<double>()[i];
  }
  EXPECT_NEAR(trainer.params_norm(), std::sqrt(sum), 1e-12 * std::sqrt(sum));
}

}  // namespace
}  // namespace megatron
