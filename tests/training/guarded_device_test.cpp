// Training, checkpoints and generation touch device memory in kernels and copies alone. On a guarded device anything
// else is a SIGSEGV (core/host_memory.h), so these runs find on a CPU what a GPU would not survive.
#include <gtest/gtest.h>

#include "megatron/inference/generator.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "megatron/training/checkpoint/snapshot.h"
#include "megatron/training/pretrain.h"
#include "megatron/training/training_data.h"
#include "tests/testing/scratch_directory.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using testing::batches_of;
using testing::gpt2_like;
using testing::llama_like;
using testing::optimizer_state_of;
using testing::ScratchDirectory;
using testing::small_config;
using testing::train;
using testing::weights_of;

const Trainer::Options kGuarded = {.guard = true};

struct Outcome {
  std::vector<double> losses, weights, state;
  double evaluation = 0, params_norm = 0, loss_scale = 0;
  bool operator==(const Outcome&) const = default;
};
Outcome outcome_of(Trainer& trainer, int64_t num_steps) {
  const int64_t begin = trainer.progress().iteration;
  Outcome outcome{.losses = train(trainer, begin, begin + num_steps)};
  outcome.evaluation = trainer.evaluate(batches_of(trainer.config(), 50)).mean();
  outcome.params_norm = trainer.params_norm();
  outcome.loss_scale = trainer.optimizer().loss_scale();
  outcome.weights = weights_of(trainer);
  outcome.state = optimizer_state_of(trainer);
  return outcome;
}

void expect_equal_runs(const std::string& words) {
  SCOPED_TRACE(words);
  Trainer guarded(small_config(words), kGuarded), plain(small_config(words), {});
  EXPECT_TRUE(outcome_of(guarded, 3) == outcome_of(plain, 3)) << "other results than without the guard";
}

TEST(GuardedDevice, TrainsInEveryPrecision) {
  for (const std::string& model : {gpt2_like(), llama_like()})
    for (const char* precision : {"", " --bf16", " --fp64", " --fp16 --initial-loss-scale 1024"})
      expect_equal_runs(model + precision);
}

TEST(GuardedDevice, SkipsStepsThatOverflow) {
  const std::string words = llama_like("--fp16 --initial-loss-scale 1e9 --hysteresis 1");
  Trainer trainer(small_config(words), kGuarded);
  const std::vector<double> before = weights_of(trainer);
  EXPECT_FALSE(trainer.train_step(batches_of(trainer.config(), 0)).optimizer.success);
  EXPECT_EQ(weights_of(trainer), before);
  EXPECT_LT(trainer.optimizer().loss_scale(), 1e9);
  expect_equal_runs(words);
}

TEST(GuardedDevice, TrainsWithEveryWayToSaveMemoryAndToStep) {
  for (const char* way :
       {" --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        " --recompute-granularity selective --recompute-modules core_attn layernorm mlp", " --micro-batch-size 1",
        " --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather", " --log-num-zeros-in-grad",
        " --optimizer sgd --sgd-momentum 0.9", " --clip-grad 0 --no-calculate-per-token-loss"})
    for (const std::string& model : {gpt2_like(), llama_like()}) expect_equal_runs(model + way + " --bf16");
}

TEST(GuardedDevice, TakesDocumentsAndPositionsThatRestart) {
  const std::string words = llama_like("--reset-position-ids --reset-attention-mask --global-batch-size 2");
  const std::vector<MicroBatch<int64_t>> batches = {
      testing::sample_of({3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2}, {5, 11})};
  Trainer guarded(small_config(words), kGuarded), plain(small_config(words), {});
  EXPECT_EQ(guarded.train_step(batches).loss.mean(), plain.train_step(batches).loss.mean());
}

TEST(GuardedDevice, SavesAndResumes) {
  for (const char* way : {" --bf16", " --fp16 --initial-loss-scale 1024", " --use-distributed-optimizer",
                          " --bf16 --use-distributed-optimizer --use-precision-aware-optimizer --exp-avg-dtype bf16",
                          " --bf16 --use-precision-aware-optimizer --main-params-dtype bf16 --main-grads-dtype bf16"
                          " --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"}) {
    SCOPED_TRACE(way);
    const ScratchDirectory directory;
    const std::string line = llama_like(way + (" --save-interval 1 --save " + directory.path()));
    const PretrainConfig config = small_config(line + " --load " + directory.path());
    PosixFileSystem files;
    Checkpointer checkpointer(files, config, {});
    Trainer straight(config, kGuarded), resumed(config, kGuarded), plain(config, {});
    train(straight, 0, 2);
    checkpointer.save(straight);
    const Outcome expected = outcome_of(straight, 2);
    ASSERT_TRUE(checkpointer.load(resumed));
    ASSERT_TRUE(checkpointer.load(plain));
    EXPECT_TRUE(outcome_of(resumed, 2) == expected);
    EXPECT_TRUE(outcome_of(plain, 2) == expected);
  }
}

TEST(GuardedDevice, ReadsACheckpointOfAnotherPrecision) {
  const ScratchDirectory directory;
  PosixFileSystem files;
  const PretrainConfig saved = small_config(gpt2_like("--save-interval 1 --save " + directory.path()));
  Trainer first(saved, kGuarded);
  Checkpointer(files, saved, {}).save(first);
  const PretrainConfig loaded = small_config(gpt2_like("--bf16 --finetune --load " + directory.path()));
  Trainer second(loaded, kGuarded);
  ASSERT_TRUE(Checkpointer(files, loaded, {}).load(second));
  EXPECT_NEAR(second.params_norm(), first.params_norm(), 1e-2 * first.params_norm());
}

TEST(GuardedDevice, IsReducedToASnapshot) {
  const PretrainConfig config = small_config(gpt2_like());
  Trainer straight(config, kGuarded), rebuilt(config, kGuarded);
  train(straight, 0, 2);
  TrainerSnapshot snapshot;
  snapshot.take(straight);
  snapshot.restore(rebuilt);
  EXPECT_TRUE(outcome_of(rebuilt, 1) == outcome_of(straight, 1));
}

/// The loop with all that happens between steps.
TEST(GuardedDevice, RunsTheWholeOfPretrainGpt) {
  const ScratchDirectory directory;
  const std::string words = llama_like(
      "--device cpu --bf16 --train-iters 4 --log-interval 1 --log-params-norm --log-num-zeros-in-grad "
      "--timing-log-level 2 "
      "--eval-interval 2 --eval-iters 2 --save-interval 2 --tensorboard-dir " +
      directory.path() + "/tensorboard --log-jsonl " + directory.path() + "/log.jsonl --save " + directory.path() +
      "/checkpoint --load " + directory.path() + "/checkpoint");
  PosixFileSystem files;
  SilentProgress silent;
  const std::atomic<int> no_signal = 0;
  for (const char* more : {"", " --train-iters 6 --override-opt_param-scheduler"}) {
    const PretrainConfig config = small_config(words + more);
    pretrain(config, *tokenizer_of(config.tokenizer),
             {.files = files,
              .progress = silent,
              .signal = no_signal,
              .signal_name = "SIGTERM",
              .host = "host",
              .process_id = 1,
              .job_id = "",
              .num_threads = 2,
              .guard = true});
  }
  EXPECT_EQ(read_file(files, directory.path() + "/checkpoint/latest_checkpointed_iteration.txt"), "6");
}

TEST(GuardedDevice, Generates) {
  for (const std::string& words : {gpt2_like("--bf16"), llama_like()}) {
    Trainer guarded(small_config(words), kGuarded), plain(small_config(words), {});
    const auto text_of = [](Trainer& trainer) {
      return Generator(trainer.context(), trainer.model()).generate({3, 17, 8}, {.max_new_tokens = 6}, {});
    };
    const std::vector<TokenId> text = text_of(guarded);
    EXPECT_EQ(text.size(), 6U);
    EXPECT_EQ(text, text_of(plain));
  }
}

}  // namespace
}  // namespace megatron
