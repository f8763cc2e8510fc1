// The reports of a training run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "megatron/base/file_system.h"
#include "tests/commands/bad_input.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

TEST(TrainingRun, EvaluationAloneNeedsNeitherLengthNorRate) {
  for (const Words& load : {Words{}, Words{"--load", "@/ckpt"}}) {
    BadInput input{"evaluation", kPretrain, {"--skip-train"}};
    input.words.insert(input.words.end(), load.begin(), load.end());
    input.without = {"--lr", "--train-iters"};
    EXPECT_THAT(expect_success(input), HasSubstr("lm loss value"));
  }
}

TEST(TrainingRun, GeneratesNumbersWithSpacesBetweenThem) {
  const ScratchDirectory scratch;
  const Outcome trained = run(
      kPretrain, words_of("--num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 16 --train-iters 1"
                          " --max-position-embeddings 16 --micro-batch-size 2 --lr 1e-3 --mock-data --num-threads 1"
                          " --tokenizer-type NullTokenizer --vocab-size 50 --save-interval 1 --eval-iters 0 --save " +
                          scratch.path()));
  ASSERT_EQ(trained.status, 0) << trained.err;
  const Outcome text = run(Command::kGenerate, {"--load", scratch.path(), "--prompt", "1 2 3", "--num-tokens", "4",
                                                "--num-threads", "1", "--ignore-eod"});
  EXPECT_TRUE(std::regex_match(text.out, std::regex("1 2 3( [0-9]+){4}\n"))) << text.out << text.err;
}

TEST(TrainingRun, GeneratesByTheTokenizerJsonThatTheCheckpointCarries) {
  const ScratchDirectory scratch;
  const std::string model = scratch.file("model");
  std::filesystem::create_directory(model);
  std::filesystem::copy_file(golden_path("tokenizers/hf/llama3.json"), model + "/tokenizer.json");
  std::ofstream(model + "/tokenizer_config.json") << R"({"eos_token": "<|end_of_text|>"})";
  const Outcome trained =
      run(kPretrain, words_of("--num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 16 --train-iters 1"
                              " --max-position-embeddings 64 --micro-batch-size 2 --lr 1e-3 --mock-data --num-threads 1"
                              " --tokenizer-type Llama3Tokenizer --tiktoken-pattern v2 --save-interval 1 --eval-iters 0"
                              " --tokenizer-model " +
                              model + " --save " + scratch.path()));
  ASSERT_EQ(trained.status, 0) << trained.err;
  std::filesystem::remove_all(model);
  const Outcome text = run(Command::kGenerate, {"--load", scratch.path(), "--prompt", "the", "--num-tokens", "4",
                                                "--num-threads", "1", "--ignore-eod"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("the")) << text.out;
}

/// Counts how often a file is opened.
class Openings {
 public:
  explicit Openings(const std::string& path) : watch_(inotify_init1(IN_NONBLOCK)) {
    EXPECT_GE(inotify_add_watch(watch_, path.c_str(), IN_OPEN | IN_CLOSE), 0) << path;
  }
  ~Openings() { close(watch_); }
  Openings(const Openings&) = delete;
  Openings& operator=(const Openings&) = delete;

  /// Number since the last call. The kernel merges equal consecutive events, but a close event lies between two opens.
  int64_t count() const {
    std::array<inotify_event, 64> events;  // events of the file itself have no name
    const ssize_t bytes = std::max<ssize_t>(read(watch_, events.data(), sizeof(events)), 0);
    return std::ranges::count(std::span(events).first(static_cast<size_t>(bytes) / sizeof(inotify_event)),
                              uint32_t{IN_OPEN}, &inotify_event::mask);
  }

 private:
  int watch_;
};

TEST(TrainingRun, ReadsTheFilesOfItsTokenizerOnce) {
  const ScratchDirectory directory;
  const std::string golden = golden_path("tokenizers/gpt2/");
  const std::string vocabulary = directory.file("vocab.json"), rules = directory.file("merges.txt");
  std::filesystem::copy_file(golden + "vocab.json", vocabulary);
  std::filesystem::copy_file(golden + "merges.txt", rules);
  const Openings of_vocabulary(vocabulary), of_rules(rules);
  const Outcome outcome =
      run(kPretrain, words_of("--num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 16"
                              " --max-position-embeddings 16 --micro-batch-size 2 --train-iters 1 --lr 1e-3 --mock-data"
                              " --num-threads 1 --vocab-file " +
                              vocabulary + " --merge-file " + rules));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(of_vocabulary.count(), 1);
  EXPECT_EQ(of_rules.count(), 1);
}

TEST(TrainingRun, ReportsThePercentOfAGivenKernelCeiling) {
  const std::string ceiling = "1e-6";  // TFLOP/s, so small that the percents have many digits
  const std::string out = expect_success(
      {.name = "ceiling", .command = kPretrain, .words = {"--log-interval", "1", "--kernel-ceiling", ceiling}});
  const auto percents = numbers(out, R"(percent of kernel ceiling: ([0-9.]+))"),
             times = numbers(out, R"(elapsed time per iteration \(ms\): ([0-9.]+))");
  ASSERT_EQ(percents.size(), times.size());
  constexpr double kRounding = 0.06;  // rounding of a time, in ms
  for (size_t i = 0; i < times.size(); ++i)
    EXPECT_NEAR(percents[i] * times[i] / (percents[0] * times[0]), 1,
                kRounding / times[i] + kRounding / times[0] + 1e-3);
  EXPECT_THAT(expect_success({.name = "none", .command = kPretrain, .words = {}}),
              Not(HasSubstr("percent of kernel ceiling")));
}

TEST(TrainingRun, TimesThePhasesOfAStepSeparately) {
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

/// Names of the timers in the first report after each line that has `heading`.
std::set<std::string> timers_after(const std::string& out, const std::string& heading) {
  std::set<std::string> names;
  bool is_awaited = false, is_report = false;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    is_report = is_report && line.starts_with("    ");
    if (is_report) names.insert(line.substr(4, line.find(' ', 4) - 4));
    if (line.starts_with("(min, max) time")) is_report = std::exchange(is_awaited, false);
    if (line.find(heading) != std::string::npos) is_awaited = true;
  }
  return names;
}

TEST(TrainingRun, PrintsMegatronsTimersOfEachLevel) {
  using Names = std::set<std::string>;
  const auto run = [](const std::string& level) {
    return expect_success({.name = "level " + level,
                           .command = kPretrain,
                           .words = {"--log-interval", "1", "--timing-log-level", level, "--load", "@/ckpt",
                                     "--finetune", "--save", "@/cache/ckpt", "--save-interval", "1"}});
  };
  const auto of_step = [](const std::string& out) { return timers_after(out, "elapsed time per iteration"); };
  const std::string out = run("0");
  EXPECT_EQ(timers_after(out, "done with setup ..."),
            (Names{"load-checkpoint", "model-and-optimizer-setup", "train/valid/test-data-iterators-setup"}));
  EXPECT_EQ(timers_after(out, "successfully saved"), Names{"save-checkpoint"});
  EXPECT_THAT(out, Not(HasSubstr("forward-backward")));
  Names expected = {"forward-backward",
                    "all-grads-sync",
                    "non-tensor-parallel-grads-all-reduce",
                    "embedding-grads-all-reduce",
                    "optimizer-clip-main-grad",
                    "optimizer-inner-step",
                    "optimizer"};
  EXPECT_EQ(of_step(run("1")), expected);
  expected.insert({"batch-generator", "forward-compute", "backward-compute"});
  EXPECT_EQ(of_step(run("2")), expected);
}

TEST(TrainingRun, ItsProgressFileRecordsSavedAndDeletedCheckpoints) {
  const ScratchDirectory directory;
  const Words words = words_of(
      "--num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16"
      " --micro-batch-size 2 --train-iters 4 --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 20"
      " --eval-iters 0 --num-threads 1 --log-progress --save-interval 1 --save-retain-interval 3 --save " +
      directory.path());
  ASSERT_EQ(run(kPretrain, words).status, 0);
  const std::string text = read_file(PosixFileSystem(), directory.file("progress.txt"));
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"Starting job", ""},        {"Saved checkpoint", "1"}, {"Deleted checkpoint", "1"}, {"Saved checkpoint", "2"},
      {"Deleted checkpoint", "2"}, {"Saved checkpoint", "3"}, {"Saved checkpoint", "4"}};
  std::vector<std::pair<std::string, std::string>> found;
  const std::regex line("\t(Starting job|Saved checkpoint|Deleted checkpoint)(\tIteration: ([0-9]+))?");
  for (std::sregex_iterator match(text.begin(), text.end(), line), end; match != end; ++match)
    found.emplace_back(match->str(1), match->str(3));
  EXPECT_EQ(found, expected) << text;
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

TEST(TrainingRun, CountsParametersBeforeTheFirstIterationAlikeOnEveryLayout) {
  const auto total = [](const Words& words) {
    const std::string out = expect_success({.name = "layout", .command = kPretrain, .words = words});
    const size_t found = out.find("number of parameters of the whole model: ");
    EXPECT_LT(found, out.find(" iteration        1/"));
    return out.substr(found, out.find('\n', found) - found);
  };
  const std::string layers = "--num-layers 2 --make-vocab-size-divisible-by 64 ";
  const std::string one_rank = total(words_of(layers));
  EXPECT_EQ(one_rank, total(words_of(layers + "--nproc-per-node 2 --pipeline-model-parallel-size 2")));
  // 64 rows of the vocabulary and 16 positions of 8 values; in a layer 8 * 8 * (4 + 8) weights, 13 * 8 biases and
  // norms.
  EXPECT_EQ(one_rank, fmt::format("number of parameters of the whole model: {}", 80 * 8 + 2 * (768 + 104) + 16));
}

TEST(TrainingRun, AdvisesIfNothingIsLeftToTrain) {
  const std::string out =
      expect_success({.name = "finished", .command = kPretrain, .words = {"--load", "@/ckpt", "--train-iters", "2"}});
  EXPECT_THAT(out,
              HasSubstr("nothing left to train: the checkpoint is of iteration 2, and with --train-iters 2 the run "
                        "ends at iteration 2. To go on, give a larger --train-iters"));
}

TEST(TrainingRun, WarnsIfThereIsNoValidationData) {
  EXPECT_THAT(expect_success({.name = "no validation data",
                              .command = kPretrain,
                              .words = {"--train-data-path", "@/data", "--eval-interval", "1"},
                              .without = {"--data-path", "--split"}}),
              HasSubstr("--eval-interval 1 has no effect: there is no validation data"));
}

TEST(TrainingRun, GenerationReportsAFullContext) {
  const Words words = {"--ignore-eod", "--num-tokens"};
  Words many = words, few = words;
  many.push_back("40");
  few.push_back("3");
  EXPECT_THAT(expect_success({.name = "40 tokens", .command = Command::kGenerate, .words = many}),
              HasSubstr("of 40 tokens: the model's context is 16"));
  EXPECT_THAT(expect_success({.name = "3 tokens", .command = Command::kGenerate, .words = few}),
              ::testing::Not(HasSubstr("the model's context is")));
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

/// An object's keys, each once; what is not JSON fails.
std::set<std::string> strict_keys(const std::string& line) {
  std::set<std::string> keys;
  const auto note = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::key) {
      EXPECT_EQ(depth, 1) << line;
      EXPECT_TRUE(keys.insert(parsed.get<std::string>()).second) << parsed << " twice in " << line;
    }
    return true;
  };
  const nlohmann::json object = nlohmann::json::parse(line, note, false);
  EXPECT_TRUE(object.is_object()) << line;
  return keys;
}

TEST(TrainingRun, EveryJsonLineNamesItsKindAndHasUniqueKeys) {
  const ScratchDirectory scratch;
  const std::string path = scratch.file("log.jsonl");
  expect_success({.name = "JSON lines",
                  .command = kPretrain,
                  .words = {"--train-iters", "4", "--log-interval", "1", "--eval-interval", "2", "--eval-iters", "1",
                            "--log-num-zeros-in-grad", "--log-params-norm", "--log-throughput", "--log-jsonl", path}});
  PosixFileSystem files;
  std::istringstream lines(read_file(files, path));
  std::multiset<std::string> sets;
  for (std::string line; std::getline(lines, line);) {
    const std::set<std::string> keys = strict_keys(line);
    for (const char* key : {"event", "time", "iteration", "set"})
      EXPECT_TRUE(keys.contains(key)) << key << ": " << line;
    const nlohmann::json object = nlohmann::json::parse(line);
    sets.insert(object["set"].get<std::string>());
    if (object["event"] == "evaluation") continue;
    EXPECT_EQ(object["event"], "training");
    for (const char* key :
         {"tokens_per_second", "tflops_per_gpu", "mfu_percent", "kernel_ceiling_percent", "data_wait_ms_per_iteration"})
      EXPECT_TRUE(keys.contains(key)) << key << ": " << line;
  }
  EXPECT_EQ(sets.count("train"), 4u);
  EXPECT_EQ(sets.count("validation"), 3u) << "after iterations 2 and 4, and at the end";
  EXPECT_EQ(sets.count("test"), 1u);
}

TEST(TrainingRun, ShowsTokensPerSecondMfuAndTheKernelCeilingByDefault) {
  const ScratchDirectory scratch, of_materials;
  const BadInput run{.name = "speed",
                     .command = kPretrain,
                     .words = {"--device", "cpu", "--train-iters", "3", "--log-interval", "1", "--eval-iters", "0",
                               "--log-throughput"}};
  const char* before = ::getenv("XDG_CACHE_HOME");
  const std::string kept = before ? before : "";
  ::setenv("XDG_CACHE_HOME", of_materials.path().c_str(), 1);
  expect_success(run);  // trains once before if no test has made the materials yet
  ::setenv("XDG_CACHE_HOME", scratch.path().c_str(), 1);
  const std::string first = expect_success(run), second = expect_success(run);
  ::setenv("XDG_CACHE_HOME", "/proc/none", 1);
  const std::string without_cache = expect_success(run);
  before ? ::setenv("XDG_CACHE_HOME", kept.c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
  const std::string line = R"(number of nan iterations: +0 \| tokens per second: ([0-9.]+) \| MFU \(%\): [0-9.]+ \| )"
                           R"(percent of kernel ceiling: [0-9.]+ \| data wait per iteration \(ms\): [0-9.]+ \|\n)";
  for (const std::string& out : {first, second, without_cache}) EXPECT_EQ(numbers(out, line).size(), 3u) << out;
  EXPECT_THAT(first, HasSubstr(scratch.path() + "/megatron/speed_"));
  EXPECT_THAT(second, HasSubstr("; from " + scratch.path() + "/megatron/"));
  EXPECT_THAT(without_cache, HasSubstr("not kept"));
  EXPECT_EQ(numbers(first, "lm loss: ([0-9.E+-]+)"), numbers(without_cache, "lm loss: ([0-9.E+-]+)"));
  EXPECT_THAT(first, ::testing::ContainsRegex("lm loss [0-9.]+, [0-9.kMG]+ tokens/s, MFU [0-9.]+ %, [0-9.]+ % of"));
}

}  // namespace
}  // namespace megatron::testing
