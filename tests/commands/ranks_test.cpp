// Training on several ranks of one process, started by the command line.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <tuple>

#include "tests/commands/bad_input.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;
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

/// The command in README.md that starts several ranks.
Words command_of_readme() {
  std::ifstream file(source_path("README.md"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t at = text.find("build/bin/megatron pretrain_gpt --nproc-per-node");
  std::string command = text.substr(at, text.find("```", at) - at);
  std::replace(command.begin(), command.end(), '\\', ' ');
  std::istringstream words(command);
  const Words all{std::istream_iterator<std::string>(words), {}};
  return {all.begin() + 2, all.end()};
}

TEST(Ranks, PrintTheLinesOfOneRankOnce) {
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

TEST(Ranks, TimeTheirCommunication) {
  const auto names = [](const Words& layout) {
    Words words = {"--timing-log-level", "2", "--nproc-per-node", "2"};
    words.insert(words.end(), layout.begin(), layout.end());
    const auto found = matches(expect_success(training("exchange", kDouble, words)), "\n    ([a-z/-]+) \\.+: \\(");
    return std::set<std::string>(found.begin(), found.end());
  };
  using ::testing::IsSupersetOf, ::testing::Contains, ::testing::Not;
  EXPECT_THAT(names({"--pipeline-model-parallel-size", "2", "--num-layers", "2"}),
              IsSupersetOf({"forward-send", "forward-recv", "backward-send", "backward-recv", "forward-compute"}));
  EXPECT_THAT(names({"--use-distributed-optimizer"}), Contains("params-all-gather"));
  EXPECT_THAT(names({}), Not(Contains("params-all-gather")));
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

/// Only the first rank reads the one sample, while the weights of the last step are still being gathered.
TEST(Ranks, EvaluateASetThatHasNoSamplesForSomeOfThem) {
  const Words whole = words_of(
      "--seq-length 32 --max-position-embeddings 32 --split 38,1,1 --train-iters 3 --full-validation --eval-interval 1"
      " --eval-micro-batch-size 1 --eval-global-batch-size 6");
  const auto outcome_of = [&](const std::string& name, const Words& more) {
    const std::string out = expect_success(training(name, joined(kDouble, whole), more));
    return std::pair(matches(out, "lm loss: (\\S+)"), matches(out, "lm loss value: (\\S+)"));
  };
  const auto expected = outcome_of("one", {});
  EXPECT_GE(expected.second.size(), 3) << "after each step";
  const Words late = words_of("--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather");
  for (const char* num_ranks : {"2", "3"})
    EXPECT_EQ(outcome_of(num_ranks, joined(late, {"--nproc-per-node", num_ranks})), expected);
}

TEST(Ranks, EndTogether) {
  const Words three = {"--nproc-per-node", "3", "--train-iters", "9", "--exit-signal-handler"};
  Words words = kDouble;
  words.insert(words.end(), three.begin(), three.end());
  EXPECT_THAT(expect_success(training("interval", words, {"--exit-interval", "2"})),
              HasSubstr("[exiting program at iteration 2]"));
}

/// An invalid token in a sample that one of three ranks reads: the others continue until they are ended.
TEST(Ranks, AFailedRankIsReportedAndEndsAll) {
  for (const auto& [token, rank, place] : std::vector<std::tuple<int64_t, int, std::string>>{
           {1384, 1, "position 20 of document 22"}, {1464, 2, "position 38 of document 23"}})
    expect_refusal({"data",
                    kPretrain,
                    {"--nproc-per-node", "3", "--micro-batch-size", "1", "--global-batch-size", "3"},
                    ExitCode::kData,
                    {fmt::format("[rank {}] @/data.bin: byte {}, {} ", rank, 2 * token, place), "token 65535"},
                    overwrite("data.bin", 2 * token, "\xff\xff")});
}

TEST(Ranks, EndWithTheErrorOfOneIfAllFail) {
  const auto expect_rank = [](BadInput input) {
    input.words.insert(input.words.end(), {"--nproc-per-node", "2"});
    input.texts.push_back("[rank ");
    expect_refusal(input);
  };
  expect_rank({"data", kPretrain, {}, ExitCode::kData, {"65535"}, overwrite("data.bin", 0, std::string(4000, '\xff'))});
  expect_rank(
      {"diverges", kPretrain, {"--lr", "1e30"}, ExitCode::kResumeToDisambiguate, {"iteration 2", "lower --lr"}});
  expect_rank(
      {"checkpoint", kPretrain, {"--load", "@/ckpt", "--num-layers", "2"}, ExitCode::kCheckpoint, {"--num-layers"}});
}

TEST(Ranks, RejectAWrongNumber) {
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

TEST(Ranks, ResumeFromTheCheckpointOfAnotherLayout) {
  BadInput input = training(
      "resume", {"--nproc-per-node", "2", "--load", "@/ckpt", "--train-iters", "4", "--override-opt_param-scheduler"});
  EXPECT_THAT(expect_success(input), HasSubstr("successfully loaded checkpoint"));
}

TEST(Ranks, EveryLayoutPrintsTheLossesOfOneRank) {
  const Words model = {"--fp64", "--log-interval",      "1", "--num-layers",  "4", "--micro-batch-size",
                       "1",      "--global-batch-size", "8", "--train-iters", "3", "--eval-interval",
                       "2"};
  const auto losses = [&](const Words& layout) {
    const std::string out = expect_success(training("layout", model, layout));
    return std::pair(matches(out, "lm loss: (\\S+)"), matches(out, "lm loss value: (\\S+)"));
  };
  const auto expected = losses({});
  EXPECT_EQ(expected.first.size(), 3);
  EXPECT_EQ(expected.second.size(), 3) << "after two steps, validation and test at the end";
  for (const Words& layout : std::vector<Words>{
           {"--nproc-per-node", "2", "--tensor-model-parallel-size", "2", "--sequence-parallel"},
           {"--nproc-per-node", "4", "--pipeline-model-parallel-size", "4"},
           {"--nproc-per-node", "4", "--pipeline-model-parallel-size", "2", "--pipeline-schedule", "zb-v"},
           {"--nproc-per-node", "2", "--pipeline-model-parallel-size", "2", "--num-virtual-stages-per-pipeline-rank",
            "2"},
           {"--nproc-per-node", "8", "--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2",
            "--use-distributed-optimizer", "--use-tp-pp-dp-mapping"}})
    EXPECT_EQ(losses(layout), expected) << ::testing::PrintToString(layout);
}

/// A vocabulary of 101 tokens has 101, 128 and 256 padded rows.
TEST(Ranks, EveryLayoutPrintsTheLossesOfOneRankOnMockData) {
  const auto losses = [](const Words& layout) {
    BadInput input = training("mock", kDouble,
                              {"--mock-data", "--tokenizer-type", "NullTokenizer", "--vocab-size", "101",
                               "--train-iters", "3", "--eval-interval", "2"});
    input.words.insert(input.words.end(), layout.begin(), layout.end());
    input.without = {"--data-path", "--vocab-file", "--split"};
    const std::string out = expect_success(input);
    return std::pair(matches(out, "lm loss: (\\S+)"), matches(out, "lm loss value: (\\S+)"));
  };
  const auto expected = losses({"--make-vocab-size-divisible-by", "1"});
  EXPECT_EQ(expected.first.size(), 3);
  for (const Words& layout : std::vector<Words>{
           {},
           {"--nproc-per-node", "2", "--tensor-model-parallel-size", "2"},
           {"--nproc-per-node", "2", "--tensor-model-parallel-size", "2", "--make-vocab-size-divisible-by", "3"}})
    EXPECT_EQ(losses(layout), expected) << ::testing::PrintToString(layout);
}

TEST(Ranks, EveryLayoutResumesFromEveryOther) {
  BadInput input = training("resume", {"--nproc-per-node", "4", "--tensor-model-parallel-size", "2",
                                       "--use-distributed-optimizer", "--load", "@/ckpt", "--save", "@/new",
                                       "--save-interval", "4", "--train-iters", "4", "--override-opt_param-scheduler"});
  input.may_write = "";
  EXPECT_THAT(expect_success(input), HasSubstr("successfully saved checkpoint from iteration       4"));
}

TEST(Ranks, RejectAPipelineThatCannotRunTheBatch) {
  expect_refusal({"interleaved",
                  kPretrain,
                  {"--nproc-per-node", "2", "--pipeline-model-parallel-size", "2", "--num-layers", "4",
                   "--num-virtual-stages-per-pipeline-rank", "2", "--micro-batch-size", "4"},
                  ExitCode::kUsage,
                  {"1 micro-batches in groups of 2", "give --global-batch-size 8"}});
}

TEST(Ranks, RoundBatchesDownTogether) {
  const std::string out = expect_success(
      training("7 on 3", {"--nproc-per-node", "3", "--micro-batch-size", "1", "--global-batch-size", "7",
                          "--eval-global-batch-size", "6", "--decrease-batch-size-if-needed", "--log-interval", "1"}));
  EXPECT_EQ(matches(out, "consumed samples: +(\\d+)"), (Words{"6", "12"}));
}

TEST(Ranks, TrainModelsThatGenerate) {
  const ScratchDirectory directory;
  Words train = command_of_readme();
  train.insert(train.end(), {"--train-iters", "2", "--save", directory.path(), "--save-interval", "2"});
  ASSERT_EQ(run(kPretrain, train).status, 0);
  const Words words = {"--load", directory.path(), "--prompt", "1 2 3", "--num-tokens", "4", "--top-k", "1"};
  const Outcome outcome = run(Command::kGenerate, words);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("1 2 3"));
}

TEST(Ranks, RunTheCommandOfTheReadme) {
  const Outcome outcome = run(kPretrain, command_of_readme());
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(matches(outcome.out, "lm loss: (\\S+)").size(), 20);
}

}  // namespace
}  // namespace megatron::testing
