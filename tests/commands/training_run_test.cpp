// What a training run reports, by the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "tests/commands/bad_input.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;
constexpr Command kPretrain = Command::kPretrainGpt;

std::vector<double> numbers(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::vector<double> found;
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
    found.push_back(std::stod(match->str(1)));
  return found;
}

TEST(TrainingRun, TimeOfAnIterationLeavesEvaluationsAndCheckpointsOut) {
  const std::string out =
      expect_success({.name = "long evaluations",
                      .command = kPretrain,
                      .words = {"--train-iters", "6", "--log-interval", "1", "--eval-interval", "1", "--eval-iters",
                                "400", "--save", "@/cache/ckpt", "--save-interval", "1"}});
  std::vector<double> evaluations = numbers(out, R"(evaluate \.+: \(([0-9.]+),)");
  std::vector<double> iterations = numbers(out, R"(elapsed time per iteration \(ms\): ([0-9.]+))");
  ASSERT_GE(evaluations.size(), 4);
  ASSERT_EQ(iterations.size(), 6);
  std::ranges::sort(evaluations);
  std::ranges::sort(iterations);
  EXPECT_LT(iterations[2], evaluations[evaluations.size() / 2] / 4) << "an evaluation is 400 batches, a step one";
}

TEST(TrainingRun, TimesThePhasesOfAStepApart) {
  const std::string out = expect_success(
      {.name = "phases", .command = kPretrain, .words = {"--log-interval", "1", "--timing-log-level", "2"}});
  const auto row = [&](const std::string& name) { return numbers(out, name + R"( \.+: \(([0-9.]+),)"); };
  EXPECT_FALSE(row("batch-generator").empty());
  EXPECT_FALSE(row("optimizer").empty());
  EXPECT_FALSE(row("all-grads-sync").empty());
  const auto passes = row("forward-backward"), steps = numbers(out, R"(elapsed time per iteration \(ms\): ([0-9.]+))");
  ASSERT_EQ(passes.size(), steps.size());
  for (size_t i = 0; i < passes.size(); ++i)
    EXPECT_LE(passes[i] + row("optimizer")[i], steps[i] + 0.1) << "a phase counts no other's time";
}

TEST(TrainingRun, FullValidationNeedsNoNumberOfBatches) {
  const std::string out = expect_success(
      {.name = "whole set",
       .command = kPretrain,
       .words = {"--train-iters", "2", "--eval-interval", "1", "--eval-iters", "0", "--full-validation"}});
  EXPECT_EQ(numbers(out, "validation loss at iteration ([0-9]+) \\|"), (std::vector<double>{1, 2}));
  EXPECT_THAT(out, HasSubstr("iteration 2 on validation set"));
}

TEST(TrainingRun, SkippedIterationsNeitherValidateNorSave) {
  const std::string out =
      expect_success({.name = "skips",
                      .command = kPretrain,
                      .words = {"--train-iters", "3", "--iterations-to-skip", "2", "--eval-interval", "1", "--save",
                                "@/cache/ckpt", "--save-interval", "1"}});
  EXPECT_EQ(numbers(out, R"(validation loss at iteration ([0-9]+) \|)"), (std::vector<double>{1, 3}));
  EXPECT_EQ(numbers(out, R"(successfully saved checkpoint from iteration +([0-9]+))"), (std::vector<double>{1, 3}));
}

TEST(TrainingRun, EstimatesMemoryAfterTheFirstTwoLines) {
  const std::string out =
      expect_success({.name = "memory", .command = kPretrain, .words = {"--train-iters", "4", "--log-interval", "1"}});
  EXPECT_EQ(numbers(out, R"(Theoretical memory footprints: weight and optimizer=([0-9.]+) MB)").size(), 2);
}

TEST(TrainingRun, SaysThatThereIsNothingToValidateWith) {
  EXPECT_THAT(expect_success({.name = "no validation data",
                              .command = kPretrain,
                              .words = {"--train-data-path", "@/data", "--eval-interval", "1"},
                              .without = {"--data-path", "--split"}}),
              HasSubstr("--eval-interval 1 has no effect: there is no validation data"));
}

TEST(TrainingRun, GenerationSaysThatTheModelIsFull) {
  const Words words = {"--ignore-eod", "--num-tokens"};
  Words many = words, few = words;
  many.push_back("40");
  few.push_back("3");
  EXPECT_THAT(expect_success({.name = "40 tokens", .command = Command::kGenerate, .words = many}),
              HasSubstr("of 40 tokens: the model sees at most 16"));
  EXPECT_THAT(expect_success({.name = "3 tokens", .command = Command::kGenerate, .words = few}),
              ::testing::Not(HasSubstr("the model sees at most")));
}

TEST(TrainingRun, ValidationSetsHaveNamesAllOrNone) {
  const Words sets = {"--train-data-path",
                      "@/data",
                      "--valid-data-path",
                      "@/data",
                      "@/data",
                      "--full-validation",
                      "--multiple-validation-sets",
                      "--eval-interval",
                      "1",
                      "--validation-set-names"};
  Words one = sets, two = sets;
  one.insert(one.end(), {"a"});
  two.insert(two.end(), {"a", "b"});
  expect_refusal({.name = "one name",
                  .command = kPretrain,
                  .words = one,
                  .texts = {"--validation-set-names: 1 names for 2 validation sets"},
                  .without = {"--data-path", "--split"}});
  const std::string out =
      expect_success({.name = "two names", .command = kPretrain, .words = two, .without = {"--data-path", "--split"}});
  EXPECT_THAT(out, HasSubstr(" validation-a loss at iteration 1 "));
  EXPECT_THAT(out, HasSubstr(" validation-b loss at iteration 1 "));
}

}  // namespace
}  // namespace megatron::testing
