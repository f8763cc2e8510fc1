#include "megatron/training/checkpoint/checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "megatron/models/gpt/gpt_model.h"
#include "megatron/training/checkpoint/main_param_check.h"
#include "tests/testing/test_device.h"
#include "tests/training/checkpoint/checkpoint_session.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using testing::gpt2_like;
using ::testing::HasSubstr;
using testing::llama_like;
using testing::loading;
using testing::optimizer_state_of;
using testing::refusal_of;
using testing::saving;
using testing::ScratchDirectory;
using testing::Session;
using testing::small_config;
using testing::train;
using testing::weights_of;

TEST(Checkpointer, ResumesBitForBit) {
  const std::vector<std::string> cases = {
      gpt2_like(),
      llama_like(),
      gpt2_like("--bf16"),
      llama_like("--bf16"),
      gpt2_like("--optimizer sgd"),
      llama_like("--bf16 --optimizer sgd"),
      gpt2_like("--optimizer sgd --sgd-momentum 0"),
      llama_like("--fp64 --decoupled-lr 1e-3"),
      gpt2_like("--bf16 --use-distributed-optimizer --use-precision-aware-optimizer"),
      llama_like("--bf16 --use-distributed-optimizer --use-precision-aware-optimizer --exp-avg-dtype bf16 "
                 "--exp-avg-sq-dtype bf16 --main-grads-dtype bf16"),
      gpt2_like("--fp16 --initial-loss-scale 1048576 --loss-scale-window 3"),
      gpt2_like("--lr-decay-style cosine --lr-warmup-iters 4 --min-lr 1e-4 --weight-decay-incr-style linear "
                "--start-weight-decay 0 --end-weight-decay 0.1")};
  for (const std::string& words : cases) {
    SCOPED_TRACE(words);
    const ScratchDirectory directory;
    Session whole(words), first(words + saving(directory)), second(words + loading(directory));
    const std::vector<double> losses = whole.train_to(10);
    first.save_at(5);
    ASSERT_TRUE(second.checkpointer.load(second.trainer));
    EXPECT_EQ(weights_of(second.trainer), weights_of(first.trainer));
    EXPECT_EQ(optimizer_state_of(second.trainer), optimizer_state_of(first.trainer));
    EXPECT_EQ(second.trainer.optimizer().num_steps(), first.trainer.optimizer().num_steps());
    EXPECT_EQ(second.train_to(10), std::vector<double>(losses.begin() + 5, losses.end()));
    EXPECT_EQ(weights_of(second.trainer), weights_of(whole.trainer));
    EXPECT_EQ(optimizer_state_of(second.trainer), optimizer_state_of(whole.trainer));
    EXPECT_EQ(second.trainer.optimizer().loss_scale(), whole.trainer.optimizer().loss_scale());
    EXPECT_EQ(second.trainer.scheduler().num_steps(), whole.trainer.scheduler().num_steps());
    const TrainingProgress &actual = second.trainer.progress(), &expected = whole.trainer.progress();
    EXPECT_EQ(actual.iteration, expected.iteration);
    EXPECT_EQ(actual.consumed_train_samples, expected.consumed_train_samples);
    EXPECT_EQ(actual.num_floating_point_operations, expected.num_floating_point_operations);
  }
}

/// In fp16 a weight below 6.1e-5 differs from its main parameter by more than epsilon times its value.
TEST(Checkpointer, KnowsAWeightFromItsMainParameterAtAnySize) {
  for (const double value : {1.0, 1e-3, 1.04e-6, 3e-8, 0.0, -1.04e-6}) {
    EXPECT_TRUE(is_rounded(static_cast<double>(Float16(value)), value, DType::kFloat16)) << value;
    EXPECT_TRUE(is_rounded(static_cast<double>(BFloat16(value)), value, DType::kBFloat16)) << value;
  }
  EXPECT_FALSE(is_rounded(1.2e-6, 1e-6, DType::kFloat16));
  EXPECT_FALSE(is_rounded(1.01e-6, 1e-6, DType::kBFloat16));
  EXPECT_FALSE(is_rounded(0, 1e-30, DType::kFloat32));
}

TEST(Checkpointer, HoldsWholeMainParamsHoweverTheRunKeepsThem) {
  const std::string whole = llama_like("--bf16 --use-distributed-optimizer");
  const std::string halves = whole + " --use-precision-aware-optimizer";
  for (const auto& [from, to] : {std::pair{halves, whole}, {whole, halves}}) {
    SCOPED_TRACE(from);
    const ScratchDirectory directory;
    Session first(from + saving(directory)), second(to + loading(directory));
    first.save_at(3);
    ASSERT_TRUE(second.checkpointer.load(second.trainer));
    EXPECT_EQ(optimizer_state_of(second.trainer), optimizer_state_of(first.trainer));
  }
}

TEST(Checkpointer, SaysWhatMakesTheStoredWeightsAnotherModel) {
  const ScratchDirectory directory;
  Session saved(gpt2_like(saving(directory)));
  saved.save_at(1);
  const auto warnings = [&](const std::string& more) {
    Session run(gpt2_like(more + loading(directory)));
    EXPECT_TRUE(run.checkpointer.load(run.trainer));
    return run.warnings;
  };
  EXPECT_THAT(warnings("--hidden-dropout 0.3 --seed 5 --recompute-activations"), ::testing::IsEmpty());
  EXPECT_THAT(warnings("--apply-layernorm-1p"),
              ElementsAre(HasSubstr("layernorm_zero_centered_gamma is False there and True here")));
  EXPECT_THAT(warnings("--finetune --softmax-type off-by-one --normalization RMSNorm"),
              ElementsAre(::testing::AllOf(HasSubstr("normalization is LayerNorm there and RMSNorm here"),
                                           HasSubstr("softmax_type is vanilla there and off-by-one here"))));
}

TEST(Checkpointer, SaysWhereSamplesComeInAnotherOrder) {
  const ScratchDirectory directory;
  Session saved(gpt2_like("--dataloader-type cyclic" + saving(directory)));
  saved.save_at(1);
  Session same(gpt2_like("--dataloader-type cyclic" + loading(directory)));
  Session other(gpt2_like("--dataloader-type cyclic --micro-batch-size 1" + loading(directory)));
  Session weights(gpt2_like("--dataloader-type cyclic --micro-batch-size 1 --finetune" + loading(directory)));
  for (Session* run : {&same, &other, &weights}) EXPECT_TRUE(run->checkpointer.load(run->trainer));
  EXPECT_TRUE(same.warnings.empty() && weights.warnings.empty());
  EXPECT_THAT(other.warnings, ElementsAre(HasSubstr("micro_batch_size is 2 there and 1 here")));
}

TEST(Checkpointer, FinetuningTakesWeightsAlone) {
  const ScratchDirectory directory;
  const std::string words = llama_like("--bf16");
  Session saved(words + saving(directory));
  saved.save_at(3);
  for (const std::string& way : {loading(directory, "--finetune"), " --pretrained-checkpoint " + directory.path()}) {
    Session run(words + way), fresh(words);
    ASSERT_TRUE(run.checkpointer.load(run.trainer));
    EXPECT_EQ(weights_of(run.trainer), weights_of(saved.trainer));
    EXPECT_EQ(run.trainer.progress().iteration, 0);
    EXPECT_EQ(run.trainer.progress().consumed_train_samples, 0);
    EXPECT_EQ(run.trainer.scheduler().num_steps(), 0);
    EXPECT_EQ(run.trainer.optimizer().num_steps(), 0);
    EXPECT_FALSE(run.checkpointer.last_saved_iteration().has_value());
    for (const OptimizerState& state : run.trainer.optimizer().states()) {
      EXPECT_EQ(testing::values_of(state.main), testing::values_of(std::as_const(*state.parameter).value()));
      for (double moment : testing::values_of(state.exp_avg)) EXPECT_EQ(moment, 0);
    }
  }
}

TEST(Checkpointer, WithoutOptimizerStateProgressIsKept) {
  const ScratchDirectory with, without;
  const std::string words = gpt2_like("--bf16");
  Session saved(words + saving(with)), lean(words + saving(without, "--no-save-optim"));
  saved.save_at(3);
  lean.save_at(3);
  EXPECT_GT(std::filesystem::file_size(with.file("iter_0000003/__0_0.distcp")),
            4 * std::filesystem::file_size(without.file("iter_0000003/__0_0.distcp")));
  Session ignoring(words + loading(with, "--no-load-optim")), warned(words + loading(without));
  for (Session* run : {&ignoring, &warned}) {
    ASSERT_TRUE(run->checkpointer.load(run->trainer));
    EXPECT_EQ(weights_of(run->trainer), weights_of(saved.trainer));
    EXPECT_EQ(run->trainer.progress().iteration, 3);
    EXPECT_EQ(run->trainer.progress().consumed_train_samples, 12);
    EXPECT_EQ(run->trainer.scheduler().num_steps(), 0);
  }
  EXPECT_THAT(ignoring.warnings, ::testing::IsEmpty());
  EXPECT_THAT(warned.warnings, ElementsAre(HasSubstr("--no-save-optim")));
}

TEST(Checkpointer, KeepsMultiplesOfTheRetainInterval) {
  const ScratchDirectory directory;
  Session run(gpt2_like(saving(directory, "--save-retain-interval 2")));
  for (int64_t iteration = 1; iteration <= 5; ++iteration) run.save_at(iteration);
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : run.files.list(directory.path())) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("iter_0000002", "iter_0000004", "iter_0000005", "latest_checkpointed_iteration.txt"));
  EXPECT_EQ(read_file(run.files, directory.file("latest_checkpointed_iteration.txt")), "5");
  EXPECT_EQ(run.checkpointer.last_saved_iteration(), 5);
  Session earlier(gpt2_like(loading(directory, "--ckpt-step 4")));
  ASSERT_TRUE(earlier.checkpointer.load(earlier.trainer));
  EXPECT_EQ(earlier.trainer.progress().iteration, 4);
}

TEST(Checkpointer, RejectsAnotherSizeAndNamesTheFlagToLeaveOut) {
  const ScratchDirectory directory;
  Session saved(gpt2_like(saving(directory)));
  saved.save_at(3);
  Session run(gpt2_like(loading(directory, "--num-layers 7")));
  EXPECT_THAT([&] { run.checkpointer.load(run.trainer); },
              ::testing::ThrowsMessage<CheckpointError>(HasSubstr("leave --num-layers out and take")));
}

TEST(Checkpointer, AnotherIterationMovesTheDataToo) {
  const ScratchDirectory directory;
  Session saved(gpt2_like(saving(directory)));
  saved.save_at(3);
  Session run(gpt2_like(loading(directory, "--override-ckpt-iteration 7")));
  ASSERT_TRUE(run.checkpointer.load(run.trainer));
  EXPECT_EQ(run.trainer.progress().iteration, 7);
  EXPECT_EQ(run.trainer.progress().consumed_train_samples, 28);
  EXPECT_EQ(run.trainer.optimizer().num_steps(), 3);
}

TEST(Checkpointer, LoadsIntoAVocabularyOfAnotherPadding) {
  const ScratchDirectory directory;
  for (const std::string& model : {gpt2_like(), llama_like("--bf16")}) {
    Session saved(model + saving(directory)), run(model + " --make-vocab-size-divisible-by 100" + loading(directory));
    saved.save_at(2);
    ASSERT_TRUE(run.checkpointer.load(run.trainer));
    const Tensor &stored = saved.trainer.model().parameters()[0]->value(),
                 &loaded = run.trainer.model().parameters()[0]->value();
    ASSERT_EQ(stored.size(0), 64);
    ASSERT_EQ(loaded.size(0), 100);
    std::vector<double> expected = testing::values_of(stored);
    expected.resize(100 * 32, 0.0);
    EXPECT_EQ(testing::values_of(loaded), expected);
    const std::vector<double> losses = saved.train_to(5);
    EXPECT_EQ(run.train_to(5), losses) << "padding takes no part";
  }
}

TEST(Checkpointer, ConvertsWeightsToThePrecisionOfTheRun) {
  const ScratchDirectory directory;
  Session saved(llama_like("--bf16") + saving(directory)), run(llama_like() + loading(directory, "--finetune"));
  saved.save_at(2);
  ASSERT_TRUE(run.checkpointer.load(run.trainer));
  EXPECT_EQ(weights_of(run.trainer), weights_of(saved.trainer));
}

TEST(Checkpointer, SaysWhatIsMissing) {
  const ScratchDirectory empty;
  Session run(gpt2_like(loading(empty)));
  EXPECT_FALSE(run.checkpointer.load(run.trainer));
  EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("no checkpoint is there; training starts from initial weights")));
  Session strict(gpt2_like(loading(empty, "--exit-on-missing-checkpoint")));
  EXPECT_THAT(refusal_of(strict), HasSubstr("leave --exit-on-missing-checkpoint out to start from initial weights"));
  Session step(gpt2_like(loading(empty, "--ckpt-step 3")));
  EXPECT_THAT(refusal_of(step), HasSubstr("leave --ckpt-step out"));
  Session none(gpt2_like(saving(empty)));
  EXPECT_FALSE(none.checkpointer.load(none.trainer));
  EXPECT_TRUE(none.messages.empty() && none.warnings.empty());
}

TEST(Checkpointer, NeverTakesADamagedDirectoryForAFirstStart) {
  const ScratchDirectory directory;
  Session saved(gpt2_like(saving(directory)));
  saved.save_at(1);
  saved.save_at(2);
  Session inside(gpt2_like(" --load " + directory.file("iter_0000002")));
  EXPECT_THAT(refusal_of(inside), HasSubstr("Give the folder that it is in: " + directory.path() + " --ckpt-step 2"));
  std::filesystem::remove(directory.file("iter_0000002/metadata.json"));
  Session fallback(gpt2_like(loading(directory)));
  EXPECT_TRUE(fallback.checkpointer.load(fallback.trainer));
  EXPECT_EQ(fallback.trainer.progress().iteration, 1);
  std::filesystem::remove(directory.file("iter_0000001/metadata.json"));
  for (const char* tracker : {"2", "release", ""}) {
    std::ofstream(directory.file("latest_checkpointed_iteration.txt")) << tracker;
    Session run(gpt2_like(loading(directory)));
    EXPECT_THAT(refusal_of(run), HasSubstr("holds no complete checkpoint. Restore one, or")) << tracker;
  }
}

TEST(Checkpointer, SavesBesideWhatIsNotComplete) {
  const ScratchDirectory directory;
  Session saved(gpt2_like(saving(directory)));
  saved.save_at(1);
  saved.save_at(2);
  const std::string tensors = read_file(saved.files, directory.file("iter_0000002/__0_0.distcp"));
  std::filesystem::remove(directory.file("iter_0000002/metadata.json"));
  Session run(gpt2_like(saving(directory) + loading(directory)));
  EXPECT_TRUE(run.checkpointer.load(run.trainer));
  run.save_at(2);
  EXPECT_THAT(run.messages, ::testing::Contains(HasSubstr("is kept as " + directory.file("iter_0000002.aside"))));
  EXPECT_EQ(read_file(run.files, directory.file("iter_0000002.aside/__0_0.distcp")), tensors);
}

TEST(Checkpointer, RefusesAFolderThatHoldsAnotherIteration) {
  const ScratchDirectory directory;
  Session saved(gpt2_like(saving(directory)));
  saved.save_at(1);
  saved.save_at(2);
  std::filesystem::remove_all(directory.file("iter_0000002"));
  std::filesystem::rename(directory.file("iter_0000001"), directory.file("iter_0000002"));
  Session run(gpt2_like(loading(directory)));
  EXPECT_THAT(refusal_of(run), HasSubstr("iter_0000002 holds iteration 1. Rename the folder"));
  CheckpointConfig config;
  config.load = directory.path();
  EXPECT_THROW(Checkpointer::stored_arguments(run.files, config), CheckpointError);
}

TEST(Checkpointer, APretrainedCheckpointMustExist) {
  const ScratchDirectory directory;
  Session saved(gpt2_like(saving(directory)));
  saved.save_at(1);
  const std::vector<double> weights = weights_of(saved.trainer);
  saved.save_at(2);
  const std::string absent = directory.file("absent");
  for (const std::string& load : {std::string(), " --load " + absent}) {
    Session run(gpt2_like(load + " --pretrained-checkpoint " + absent));
    EXPECT_THAT(refusal_of(run), HasSubstr("--pretrained-checkpoint " + absent + ": no checkpoint is there")) << load;
    Session earlier(gpt2_like(load + " --ckpt-step 1 --pretrained-checkpoint " + directory.path()));
    ASSERT_TRUE(earlier.checkpointer.load(earlier.trainer)) << load;
    EXPECT_EQ(weights_of(earlier.trainer), weights);
  }
}

TEST(Checkpointer,
     KnowsOnlyItsOwnSavesAsTheLastSavedIteration) {  // the loop saves the last iteration unless it is this
  const ScratchDirectory directory;
  Session saved(gpt2_like(saving(directory)));
  saved.save_at(3);
  Session run(gpt2_like(saving(directory) + loading(directory, "--override-ckpt-iteration 1")));
  ASSERT_TRUE(run.checkpointer.load(run.trainer));
  run.train_to(3);
  EXPECT_NE(run.checkpointer.last_saved_iteration(), run.trainer.progress().iteration);
}

TEST(Checkpointer, RefusesAnotherModel) {
  const ScratchDirectory directory;
  Session saved(gpt2_like(saving(directory)));
  saved.save_at(1);
  Session heads(gpt2_like(loading(directory, "--num-attention-heads 8")));
  EXPECT_THAT(refusal_of(heads), HasSubstr("--num-attention-heads is 8, but the checkpoint's model has 4"));
  Session layers(gpt2_like(loading(directory, "--num-layers 4")));
  EXPECT_THAT(refusal_of(layers), HasSubstr("--num-layers is 4, but the checkpoint's model has 3"));
  Session ffn(gpt2_like(loading(directory, "--ffn-hidden-size 64")));
  EXPECT_THAT(refusal_of(ffn), HasSubstr("decoder.layers.mlp.linear_fc1.weight"));
  Session untied(gpt2_like(loading(directory, "--untie-embeddings-and-output-weights")));
  EXPECT_THAT(refusal_of(untied), HasSubstr("output_layer.weight"));
  Session schedule(gpt2_like(loading(directory, "--lr 5e-3")));
  EXPECT_THAT(refusal_of(schedule), HasSubstr("max_lr"));
  Session sgd(gpt2_like("--optimizer sgd") + loading(directory));
  EXPECT_THAT(refusal_of(sgd), HasSubstr("momentum_buffer"));
  EXPECT_THAT(refusal_of(sgd), HasSubstr("--no-load-optim"));
}

TEST(Checkpointer, RefusesDamage) {
  const ScratchDirectory directory;
  Session saved(gpt2_like(saving(directory, "--no-save-rng")));  // which Megatron alone reads
  saved.save_at(1);
  const std::string path = directory.file("iter_0000001/__0_0.distcp");
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  int num_places = 0;
  for (int64_t offset = 300; offset < size; offset += size / 7) {  // any one byte of tensors or objects
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto flip = [&] {
      file.seekg(offset);
      const auto byte = static_cast<char>(file.get() ^ 0x10);
      file.seekp(offset);
      file.put(byte).flush();
    };
    flip();
    Session run(gpt2_like(loading(directory)));
    num_places += !refusal_of(run).empty();
    flip();
  }
  EXPECT_GE(num_places, 6) << "a byte between items may be of no importance";
  Session whole(gpt2_like(loading(directory)));
  EXPECT_TRUE(whole.checkpointer.load(whole.trainer));
  std::filesystem::resize_file(path, static_cast<uintmax_t>(size / 2));
  Session cut(gpt2_like(loading(directory)));
  EXPECT_NE(refusal_of(cut), "");
}

TEST(Checkpointer, GivesBackTheArgumentsOfTheRun) {
  const ScratchDirectory directory;
  Session saved(llama_like(saving(directory)));
  saved.save_at(1);
  CheckpointConfig config;
  config.load = directory.path();
  const PretrainConfig stored = arguments_from_json(Checkpointer::stored_arguments(saved.files, config));
  EXPECT_EQ(arguments_to_json(stored), arguments_to_json(saved.trainer.config()));
  testing::TestDevice device;
  const Context ctx = device.context();
  GptModel model({.ctx = ctx, .config = stored.transformer, .groups = ProcessGroupCollection::single(), .path = ""});
  Checkpointer::load_model(saved.files, config, ctx, model);
  std::vector<double> weights;
  for (const Parameter* parameter : model.parameters())
    for (double value : testing::values_of(parameter->value())) weights.push_back(value);
  EXPECT_EQ(weights, weights_of(saved.trainer));
}

}  // namespace
}  // namespace megatron
