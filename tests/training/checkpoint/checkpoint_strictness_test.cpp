// --dist-ckpt-strictness: each of Megatron's modes, for tensors that only the run or only the checkpoint has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/test_device.h"
#include "tests/training/checkpoint/checkpoint_session.h"

namespace megatron::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kBias = "decoder.layers.mlp.linear_fc1.bias";
const std::string kNoBiases = " --disable-bias-linear";

/// The messages of a load; the text of an error begins with "error".
std::string outcome(const std::string& words, const ScratchDirectory& directory, const std::string& mode) {
  Session run(words + loading(directory, "--dist-ckpt-strictness " + mode));
  const std::string refusal = refusal_of(run);
  if (!refusal.empty()) return "error: " + refusal;
  std::string text;
  for (const std::string& warning : run.warnings)
    if (!warning.starts_with("the checkpoint is of another model")) text += warning;
  return text;
}

TEST(CheckpointStrictness, TensorsThatTheCheckpointLacksAreAnErrorOrKeepTheirValues) {
  const ScratchDirectory directory;
  Session saved(gpt2_like(kNoBiases + saving(directory)));
  saved.save_at(2);
  for (const char* mode : {"raise_unexpected", "raise_all"})
    EXPECT_THAT(outcome(gpt2_like(), directory, mode),
                AllOf(HasSubstr("error: "), HasSubstr("12 tensors of this run are not in the checkpoint"),
                      HasSubstr(kBias), HasSubstr("--dist-ckpt-strictness log_all")))
        << mode;
  EXPECT_THAT(outcome(gpt2_like(), directory, "assume_ok_unexpected"), HasSubstr("error: "));
  for (const char* mode : {"log_unexpected", "log_all", "return_unexpected", "return_all"})
    EXPECT_THAT(outcome(gpt2_like(), directory, mode),
                AllOf(Not(HasSubstr("error")), HasSubstr("12 tensors of this run are not in the checkpoint"),
                      HasSubstr("keep their initial values")))
        << mode;
  EXPECT_THAT(outcome(gpt2_like(), directory, "ignore_all"), IsEmpty());
}

TEST(CheckpointStrictness, TensorsThatTheRunLacksAreNamedByTheModesForAll) {
  const ScratchDirectory directory;
  Session saved(gpt2_like(saving(directory)));
  saved.save_at(2);
  const std::string words = gpt2_like(kNoBiases);
  EXPECT_THAT(outcome(words, directory, "raise_all"),
              AllOf(HasSubstr("error: "), HasSubstr("12 tensors of the checkpoint are not read by this run"),
                    HasSubstr(kBias)));
  for (const char* mode : {"log_all", "return_all"})
    EXPECT_THAT(outcome(words, directory, mode),
                AllOf(Not(HasSubstr("error")), HasSubstr("12 tensors of the checkpoint are not read by this run")))
        << mode;
  for (const char* mode :
       {"assume_ok_unexpected", "log_unexpected", "raise_unexpected", "return_unexpected", "ignore_all"})
    EXPECT_THAT(outcome(words, directory, mode), IsEmpty()) << mode;
}

TEST(CheckpointStrictness, NoModeFindsFaultWithTheRunThatSaved) {
  for (const std::string& words : {gpt2_like(), llama_like("--bf16 --use-distributed-optimizer"),
                                   llama_like("--bf16 --use-precision-aware-optimizer")}) {
    const ScratchDirectory directory;
    Session saved(words + saving(directory));
    saved.save_at(1);
    EXPECT_THAT(outcome(words, directory, "raise_all"), IsEmpty()) << words;
  }
}

TEST(CheckpointStrictness, MainParametersOfWeightsThatAreLeftOutAreThoseWeights) {
  const ScratchDirectory directory;
  Session saved(gpt2_like("--bf16" + kNoBiases + saving(directory)));
  saved.save_at(2);
  const std::string words = gpt2_like("--bf16");
  Session fresh(words), run(words + loading(directory, "--dist-ckpt-strictness ignore_all"));
  ASSERT_TRUE(run.checkpointer.load(run.trainer));
  for (size_t i = 0; i < run.trainer.model().parameters().size(); ++i) {
    const Parameter &own = *run.trainer.model().parameters()[i], &initial = *fresh.trainer.model().parameters()[i];
    if (!own.name().ends_with("linear_fc1.bias")) continue;
    EXPECT_EQ(values_of(own.value()), values_of(initial.value())) << own.name();
  }
  EXPECT_EQ(run.train_to(3).size(), 1U);
}

/// Weights of which the checkpoint has no main parameters step from what was loaded, not from initial values.
TEST(CheckpointStrictness, MainParametersThatTheCheckpointLacksAreCopiesOfTheLoadedWeights) {
  const ScratchDirectory directory;
  Session saved(gpt2_like(saving(directory)));  // in fp32 the weights themselves are stepped
  saved.save_at(2);
  Session run(gpt2_like("--bf16") + loading(directory, "--dist-ckpt-strictness log_unexpected"));
  Session weights(gpt2_like("--bf16") + loading(directory, "--no-load-optim"));
  ASSERT_TRUE(run.checkpointer.load(run.trainer));
  ASSERT_TRUE(weights.checkpointer.load(weights.trainer));
  EXPECT_EQ(weights_of(run.trainer), weights_of(weights.trainer));
}

TEST(CheckpointStrictness, MegatronsOwnCheckpointsHaveEveryTensorOfTheRun) {
  Session run(golden_words("lm019/llama_1") + " --dist-ckpt-strictness raise_all");
  EXPECT_EQ(refusal_of(run), "");
}

}  // namespace
}  // namespace megatron::testing
