// Runs whose batches come from the program that calls pretrain(), and runs in phases.
#include "megatron/training/external_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/parallel/whole_run.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;

/// A program's own batches: those of the data set of another command line.
class BatchesOfARun final : public ExternalData {
 public:
  BatchesOfARun(const std::string& words, int num_ranks)
      : config_(small_config(words, num_ranks)),
        tokenizer_(tokenizer_of(config_.tokenizer)),
        data_(config_, *tokenizer_, {}, {}) {}

  std::unique_ptr<BatchSource> train(int64_t dp_rank, int64_t consumed_samples) const override {
    return std::make_unique<Source>(data_.train_reader(dp_rank, consumed_samples));
  }
  bool has_validation() const override { return true; }
  std::unique_ptr<BatchSource> validation(int64_t dp_rank, int64_t consumed_samples) const override {
    return std::make_unique<Source>(data_.validation_reader(0, dp_rank, consumed_samples));
  }

 private:
  struct Source final : BatchSource {
    explicit Source(std::unique_ptr<BatchReader> read) : reader(std::move(read)) {}
    bool next(MicroBatch<int64_t>& batch) override {
      const auto batches = reader->read_at_most(1);
      if (!batches.empty()) batch = batches[0];
      return !batches.empty();
    }
    std::unique_ptr<BatchReader> reader;
  };

  PretrainConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TrainingData data_;
};

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  return text.replace(text.find(old), old.size(), by);
}

TEST(ExternalData, OfAProgramIsTakenAsItIs) {
  const ScratchDirectory directory;
  const std::string model = gpt2_like(
      "--fp64 --global-batch-size 8 --micro-batch-size 2 --train-iters 4 --eval-iters 1 --eval-interval 2 "
      "--log-interval 1 ");
  const std::string external = replaced(model, "--mock-data", "--dataloader-type external");
  const std::atomic<int> signal = 0;
  Listener listener, external_listener;
  run(model + "--log-jsonl " + directory.file("data"), 1, listener, signal);
  const BatchesOfARun batches(model, 2);
  const std::string save = "--save " + directory.file("checkpoint") + " --load " + directory.file("checkpoint") +
                           " --save-interval 2 --log-jsonl " + directory.file("external");
  run(external + "--exit-interval 2 " + save, 2, external_listener, signal, {}, &batches);
  run(external + save, 2, external_listener, signal, {}, &batches);
  const auto expected = losses_in(directory.file("data"));
  EXPECT_EQ(expected.size(), 4);
  EXPECT_THAT(losses_in(directory.file("external")), ::testing::Pointwise(SameIterationAndLoss(), expected));
  EXPECT_THAT(external_listener.lines, HasSubstr("validation loss at iteration 4"));
}

TEST(ExternalData, WithOtherShapesOrMissingIsRejected) {
  const std::atomic<int> signal = 0;
  const std::string model = gpt2_like("--eval-iters 0 --train-iters 2 ");
  const std::string external = replaced(model, "--mock-data", "--dataloader-type external");
  const BatchesOfARun batches(model + "--micro-batch-size 1 ", 1);
  Listener listener;
  try {
    run(external, 1, listener, signal, {}, &batches);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a batch has 1 samples of 16 tokens"));
    EXPECT_THAT(error.what(), HasSubstr("it must have 2 of 16."));
  }
  EXPECT_THROW(run(external, 1, listener, signal), ConfigError);
}

TEST(TrainingPhases, APhaseEndsWithACheckpointFromWhichTheNextOneGoesOn) {
  const ScratchDirectory directory;
  const std::string words = gpt2_like(
      "--train-iters 5 --eval-iters 0 --log-interval 1 --save-interval 1000 --phase-transition-iterations 4,2 --save " +
      directory.file("checkpoint") + " --load " + directory.file("checkpoint") + " --log-jsonl ");
  const std::atomic<int> signal = 0;
  const std::vector<std::vector<int64_t>> phases = {{1, 2}, {3, 4}, {5}};
  for (const std::vector<int64_t>& phase : phases) {
    const std::string log = directory.file(fmt::format("phase{}", phase.front()));
    Listener listener;
    run(words + log, 1, listener, signal);
    std::vector<int64_t> iterations;
    for (const auto& [iteration, loss] : losses_in(log)) iterations.push_back(iteration);
    EXPECT_EQ(iterations, phase);
    const std::string line = fmt::format("exiting program at iteration {}", phase.back());
    EXPECT_EQ(listener.lines.find(line) != std::string::npos, phase.back() < 5) << listener.lines;
  }
}

}  // namespace
}  // namespace megatron::testing
