// Training on several ranks of one process, as the command line starts it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tests/commands/bad_input.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;
constexpr Command kPretrain = Command::kPretrainGpt;
const Words kDouble = {"--fp64", "--log-interval", "1", "--micro-batch-size", "1", "--global-batch-size", "6"};

BadInput training(const std::string& name, Words words, const Words& more = {}) {
  words.insert(words.end(), more.begin(), more.end());
  return {name, kPretrain, words};
}

std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
    found.push_back(match->str(match->size() - 1));
  return found;
}

TEST(Ranks, PrintWhatOneRankPrintsOnce) {
  const auto numbers = [](const std::string& out) {
    std::vector<std::vector<std::string>> all;
    for (const char* pattern : {"lm loss: (\\S+)", "grad norm: (\\S+)", "consumed samples: +(\\d+)",
                                "lm loss value: (\\S+)", "learning rate: (\\S+)"})
      all.push_back(matches(out, pattern));
    return all;
  };
  const auto expected = numbers(expect_success(training("one", kDouble)));
  EXPECT_EQ(expected[0].size(), 2);
  EXPECT_EQ(expected[3].size(), 2) << "validation and test";
  for (const char* num_ranks : {"2", "3"})
    EXPECT_EQ(numbers(expect_success(training(num_ranks, kDouble, {"--nproc-per-node", num_ranks}))), expected);
}

TEST(Ranks, ReportTimesAndMemoryOfAll) {
  const std::string out = expect_success(training(
      "three", kDouble,
      {"--nproc-per-node", "3", "--timing-log-level", "1", "--timing-log-option", "all", "--log-params-norm"}));
  EXPECT_THAT(out, HasSubstr("rank  2:"));
  EXPECT_EQ(matches(out, "(\\[Rank \\d+\\]) \\(after 1 iterations\\)").size(), 1) << "of one replica";
}

TEST(Ranks, EvaluateTheWholeValidationSetTogether) {
  const Words whole = {"--full-validation", "--eval-micro-batch-size", "1", "--eval-global-batch-size", "6"};
  Words words = kDouble;
  words.insert(words.end(), whole.begin(), whole.end());
  const auto expected = matches(expect_success(training("one", words)), "lm loss value: (\\S+)");
  EXPECT_FALSE(expected.empty());
  for (const char* num_ranks : {"2", "3"})
    EXPECT_EQ(
        matches(expect_success(training(num_ranks, words, {"--nproc-per-node", num_ranks})), "lm loss value: (\\S+)"),
        expected);
}

TEST(Ranks, EndTogether) {
  const Words three = {"--nproc-per-node", "3", "--train-iters", "9", "--exit-signal-handler"};
  Words words = kDouble;
  words.insert(words.end(), three.begin(), three.end());
  EXPECT_THAT(expect_success(training("interval", words, {"--exit-interval", "2"})),
              HasSubstr("[exiting program at iteration 2]"));
}

TEST(Ranks, ThatFailAreNamedAndEndAll) {
  const auto expect_rank = [](BadInput input) {
    input.words.insert(input.words.end(), {"--nproc-per-node", "2"});
    input.texts.push_back("[rank ");
    expect_refusal(input);
  };
  expect_rank({"data", kPretrain, {}, ExitCode::kData, {"65535"}, overwrite("data.bin", 0, std::string(4000, '\xff'))});
  expect_rank({"diverges", kPretrain, {"--lr", "1e30"}, ExitCode::kFailure, {"iteration 2", "Lower --lr"}});
  expect_rank(
      {"checkpoint", kPretrain, {"--load", "@/ckpt", "--num-layers", "2"}, ExitCode::kCheckpoint, {"--num-layers"}});
}

TEST(Ranks, OfTheWrongNumberAreRefused) {
  expect_refusals({
      {"tensor 2 of 3",
       kPretrain,
       {"--nproc-per-node", "3", "--tensor-model-parallel-size", "2"},
       ExitCode::kUsage,
       {"3 ranks do not divide by tensor 2", "Start 4 ranks", "--nproc-per-node"}},
      {"batch",
       kPretrain,
       {"--nproc-per-node", "3"},
       ExitCode::kUsage,
       {"global batch size 4", "data-parallel size 3"}},
      {"none", kPretrain, {"--nproc-per-node", "0"}, ExitCode::kUsage, {"--nproc-per-node 0: must be at least 1"}},
      {"too many", kPretrain, {"--nproc-per-node", "100000"}, ExitCode::kUsage, {"--nproc-per-node 100000", "at most"}},
  });
}

TEST(Ranks, GoOnFromTheCheckpointOfOthers) {
  BadInput input = training(
      "resume", {"--nproc-per-node", "2", "--load", "@/ckpt", "--train-iters", "4", "--override-opt_param-scheduler"});
  EXPECT_THAT(expect_success(input), HasSubstr("successfully loaded checkpoint"));
}

}  // namespace
}  // namespace megatron::testing
