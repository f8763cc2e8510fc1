// Checkpoints between runs of different precision: what the finer one knows of the weights is kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "megatron/training/checkpoint/checkpointer.h"
#include "tests/parallel/layout_checkpoint.h"
#include "tests/testing/test_device.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr const char* kPrecisionAware = " --use-precision-aware-optimizer";
constexpr const char* kTenBytes = " --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16";
constexpr const char* kEightBytes =
    " --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --main-params-dtype bf16";
constexpr const char* kDistributed = " --use-distributed-optimizer";

std::string model(const std::string& more = {}) { return llama_like(" --micro-batch-size 1 --lr 1e-3" + more); }

/// The main parameters alone that one rank has after a load.
std::vector<double> loaded_main_params(const std::string& words) {
  Trainer trainer(small_config(words), {});
  PosixFileSystem files;
  EXPECT_TRUE(Checkpointer(files, trainer.config(), {}).load(trainer));
  std::vector<double> all;
  for (const OptimizerState& state : trainer.optimizer().states()) {
    const Tensor main = trainer.optimizer().main_params(trainer.context(), state);
    for (const double value : values_of(main)) all.push_back(value);
  }
  return all;
}

/// Halves round ties another way than copies, so by the bound instead of by the bits.
void expect_rounded(const std::vector<double>& exact, const std::vector<double>& bf16) {
  ASSERT_EQ(exact.size(), bf16.size());
  for (size_t i = 0; i < exact.size(); ++i)
    ASSERT_LE(std::abs(exact[i] - bf16[i]), epsilon(DType::kBFloat16) / 2 * std::abs(exact[i])) << i;
}

TEST(CheckpointPrecision, MainParamsOfABf16CheckpointBecomeTheWeightsOfAFinerRun) {
  const std::vector<Layout> layouts = {{"", 1}, {" --tensor-model-parallel-size 2", 4}};
  for (const char* form : {"", kPrecisionAware, kTenBytes, kEightBytes})
    for (const char* optimizer : {"", kDistributed})
      for (const Layout& layout : layouts) {
        SCOPED_TRACE(std::string(form) + optimizer + layout.words);
        const ScratchDirectory directory, again;
        const std::string bf16 = model(" --bf16") + form;
        continue_to(bf16 + optimizer + saving(directory), layout, 2);
        const State saved = state_of(bf16 + optimizer + loading(directory));
        for (const char* finer : {"", " --use-distributed-optimizer", " --fp64"}) {
          const State loaded = state_of(model(finer) + loading(directory));
          EXPECT_EQ(loaded.optimizer, saved.optimizer) << finer;
          EXPECT_EQ(loaded.weights == saved.weights, form == kEightBytes) << finer;
          expect_rounded(loaded.weights, saved.weights);
        }
        const Layout other{" --use-distributed-optimizer --tensor-model-parallel-size 2", 4};
        continue_to(model() + loading(directory) + saving(again), other, 2);
        EXPECT_EQ(state_of(model() + loading(again)).optimizer, saved.optimizer);
      }
}

TEST(CheckpointPrecision, WeightsOfAnFp32CheckpointBecomeTheMainParamsOfABf16Run) {
  for (const char* optimizer : {"", kDistributed}) {
    const ScratchDirectory directory, again;
    continue_to(model(optimizer) + saving(directory), {"", 2}, 2);
    const State saved = state_of(model() + loading(directory));
    for (const char* form : {"", kPrecisionAware})
      for (const char* own : {"", kDistributed}) {
        SCOPED_TRACE(std::string(optimizer) + " to" + form + own);
        const State loaded = state_of(model(" --bf16") + form + own + loading(directory));
        EXPECT_EQ(loaded.optimizer, saved.optimizer);
        expect_rounded(saved.weights, loaded.weights);
      }
    continue_to(model(" --bf16") + loading(directory) + saving(again), {" --tensor-model-parallel-size 2", 2}, 2);
    EXPECT_EQ(state_of(model() + loading(again)).optimizer, saved.optimizer) << "there and back";
  }
}

TEST(CheckpointPrecision, WithoutTheOptimizerWeightsAreThoseThatTheModelComputedWith) {
  const ScratchDirectory directory;
  continue_to(model(" --bf16") + saving(directory), {}, 2);
  const State saved = state_of(model(" --bf16") + loading(directory));
  for (const char* way : {" --no-load-optim", " --finetune"})
    EXPECT_EQ(state_of(model() + way + loading(directory)).weights, saved.weights) << way;
}

TEST(CheckpointPrecision, LoadMainParamsFromCkptTakesTheHighestPrecisionWithoutTheOptimizer) {
  const std::string flags = " --no-load-optim --load-main-params-from-ckpt";
  const ScratchDirectory bf16, fp32, weights_alone;
  continue_to(model(" --bf16") + saving(bf16), {}, 2);
  continue_to(model() + saving(fp32), {}, 2);
  continue_to(model() + " --no-save-optim" + saving(weights_alone), {}, 2);
  for (const ScratchDirectory* directory : {&bf16, &fp32, &weights_alone})
    for (const char* form : {"", kPrecisionAware, kDistributed}) {
      SCOPED_TRACE(form);
      const std::string words = model(" --bf16") + form + loading(*directory);
      const std::vector<double> expected = loaded_main_params(
          directory == &bf16 ? model(" --bf16") + loading(bf16) : model(" --no-load-optim") + loading(*directory));
      EXPECT_EQ(loaded_main_params(words + flags), expected);
      const std::vector<double> copies = loaded_main_params(words + " --no-load-optim");
      EXPECT_NE(copies, expected);
      expect_rounded(expected, copies);
      const State loaded = state_of(words + flags);
      expect_rounded(expected, loaded.weights);
      EXPECT_EQ(loaded.num_steps, 0);
    }
  EXPECT_EQ(loaded_main_params(model() + flags + loading(bf16)), loaded_main_params(model(" --bf16") + loading(bf16)))
      << "weights in fp32 are their own main parameters";
  EXPECT_THAT([&] { small_config(model(" --bf16 --load-main-params-from-ckpt") + loading(bf16)); },
              ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("needs --no-load-optim")));
}

}  // namespace
}  // namespace megatron::testing
