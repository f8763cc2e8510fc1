// Training under mpirun gives the bits of training on ranks that are threads.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "commands/exit_code.h"
#include "tests/testing/mpirun.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"
#include "tests/testing/words.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::joined;
using testing::Words;
using testing::words_of;

std::string quoted(const Words& words) {
  std::string command;
  for (const std::string& word : words) command += " '" + word + "'";
  return command;
}

/// Loss and gradient norm of each iteration, with all digits.
std::vector<std::pair<double, double>> numbers(const std::string& path) {
  std::vector<std::pair<double, double>> result;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains("lm_loss") && record.contains("grad_norm"))
      result.emplace_back(record["lm_loss"], record["grad_norm"]);
  }
  return result;
}

/// Whole lines of a log that may be written to.
int64_t numbers_so_far(const std::string& path) {
  std::ifstream file(path);
  return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
}

struct Layout {
  std::string name;
  int num_ranks = 1;
  Words words;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

/// The layouts of tests/commands/named_layouts.txt.
struct NamedLayouts {
  Words training{"pretrain_gpt"};
  std::vector<Layout> layouts;
};
NamedLayouts named_layouts() {
  NamedLayouts named;
  std::ifstream file(testing::source_path("tests/commands/named_layouts.txt"));
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string kind;
    line >> kind;
    Words* words = &named.training;
    if (kind == "layout") {
      Layout& layout = named.layouts.emplace_back();
      line >> layout.name >> layout.num_ranks;
      words = &layout.words;
    } else if (kind != "training") {
      continue;
    }
    words->insert(words->end(), std::istream_iterator<std::string>(line), {});
  }
  return named;
}

class Layouts : public ::testing::TestWithParam<Layout> {};

TEST_P(Layouts, ProcessesTrainWithTheBitsOfThreads) {
  const testing::ScratchDirectory folder;
  const std::string threads = folder.file("threads.jsonl"), processes = folder.file("processes.jsonl");
  const Words words = joined(named_layouts().training, GetParam().words);
  const auto mpi = testing::run_under_mpi(GetParam().num_ranks,
                                          joined({MEGATRON_PROGRAM}, joined(words, {"--log-jsonl", processes})));
  if (!mpi) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  ASSERT_EQ(mpi->status, 0) << mpi->output;
  const auto here = testing::run_shell(
      std::string(MEGATRON_PROGRAM) +
      quoted(joined(words, {"--log-jsonl", threads, "--nproc-per-node", std::to_string(GetParam().num_ranks)})));
  ASSERT_EQ(here.status, 0) << here.output;
  const auto expected = numbers(threads);
  EXPECT_EQ(expected.size(), 4);
  EXPECT_EQ(numbers(processes), expected);
}

INSTANTIATE_TEST_SUITE_P(All, Layouts, ::testing::ValuesIn(named_layouts().layouts),
                         [](const auto& info) { return info.param.name; });

TEST(MpiTraining, TwelveNamedLayoutsHaveAllSchedulesAndKindsOfRanks) {
  const std::vector<Layout> layouts = named_layouts().layouts;
  EXPECT_EQ(layouts.size(), 12);
  const auto has = [&](const Words& words, int num_ranks) {
    return std::ranges::any_of(layouts, [&](const Layout& layout) {
      return layout.num_ranks >= num_ranks && std::ranges::search(layout.words, words).begin() != layout.words.end();
    });
  };
  for (const std::string schedule : {"gpipe", "zb-h1", "zb-v"}) EXPECT_TRUE(has({"--pipeline-schedule", schedule}, 4));
  for (const std::string flag :
       {"--num-virtual-stages-per-pipeline-rank", "--use-distributed-optimizer", "--pipeline-schedule"})
    EXPECT_TRUE(has({flag}, 8)) << flag;
  EXPECT_TRUE(has({"--tensor-model-parallel-size", "4"}, 4));
  EXPECT_TRUE(has({"--use-distributed-optimizer"}, 3));
}

TEST(MpiTraining, ResumesWhatThreadsHaveSaved) {
  const testing::ScratchDirectory folder;
  const std::string save = folder.file("ckpt"), log = folder.file("log.jsonl");
  const auto train = [&](const Words& more) { return joined(named_layouts().training, more); };
  const auto whole = testing::run_shell(
      std::string(MEGATRON_PROGRAM) +
      quoted(train({"--nproc-per-node", "2", "--log-jsonl", log, "--save", save, "--save-interval", "2"})));
  ASSERT_EQ(whole.status, 0) << whole.output;
  const auto expected = numbers(log);
  const std::string resumed = folder.file("resumed.jsonl");
  const auto mpi = testing::run_under_mpi(
      2, joined({MEGATRON_PROGRAM}, train({"--load", save, "--ckpt-step", "2", "--log-jsonl", resumed})));
  if (!mpi) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  ASSERT_EQ(mpi->status, 0) << mpi->output;
  EXPECT_THAT(numbers(resumed), ::testing::ElementsAre(expected[2], expected[3]));
}

TEST(MpiTraining, RejectsANumberOfRanksUnderALauncher) {
  const auto mpi = testing::run_under_mpi(
      2, joined({MEGATRON_PROGRAM}, joined(named_layouts().training, {"--nproc-per-node", "3"})));
  if (!mpi) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  EXPECT_EQ(mpi->status, 2);
  EXPECT_THAT(mpi->output, HasSubstr("--nproc-per-node 3 starts ranks in this process, but a launcher has started 2"));
}

TEST(MpiTraining, OneProcessUnderMpirunStartsThreads) {
  const auto mpi = testing::run_under_mpi(
      1, joined({MEGATRON_PROGRAM}, joined(named_layouts().training, {"--nproc-per-node", "3"})));
  if (!mpi) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  EXPECT_EQ(mpi->status, 0) << mpi->output;
}

/// A training run on the dataset `prefix`.
Words training_on(const std::string& prefix) {
  return joined(words_of(MEGATRON_PROGRAM
                         " pretrain_gpt --num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 8"
                         " --max-position-embeddings 8 --micro-batch-size 1 --global-batch-size 3 --train-iters 1"
                         " --lr 1e-3 --tokenizer-type ByteLevelTokenizer --eval-iters 0 --num-threads 1"),
                {"--train-data-path", prefix});
}

/// Two ranks with the data of one host, and a third with the data of another.
std::optional<testing::MpiOutcome> train_on_hosts(const std::string& prefix, const std::string& other_prefix) {
  return testing::run_under_mpi(2, joined(training_on(prefix), joined({":", "-np", "1"}, training_on(other_prefix))));
}

void make_data(const testing::ScratchDirectory& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.file(name + ".txt")) << text;
  const auto made = testing::run_shell(
      std::string(MEGATRON_PROGRAM) +
      quoted({"preprocess_data", "--input", folder.file(name + ".txt"), "--input-format", "text", "--text-documents",
              "blank-line", "--tokenizer-type", "ByteLevelTokenizer", "--output-prefix", folder.file(name)}));
  ASSERT_EQ(made.status, 0) << made.output;
}

TEST(MpiTraining, RejectsRanksWithDifferentDataNamingFileAndRank) {
  const testing::ScratchDirectory folder;
  make_data(folder, "a", "one line of text\n");
  make_data(folder, "b", "one line of text\nanother one\n");
  const auto mpi = train_on_hosts(folder.file("a_text_document"), folder.file("b_text_document"));
  if (!mpi) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  EXPECT_EQ(mpi->status, static_cast<int>(ExitCode::kData)) << mpi->output;
  EXPECT_THAT(mpi->output,
              AllOf(HasSubstr("The ranks were given different data: " + folder.file("a_text_document.idx")),
                    HasSubstr(") on ranks 0, 1, " + folder.file("b_text_document.idx")), HasSubstr(") on rank 2")));
}

TEST(MpiTraining, ARankWhoseHostLacksDataIsNamed) {
  const testing::ScratchDirectory folder;
  make_data(folder, "a", "one line of text\n");
  const auto mpi = train_on_hosts(folder.file("a_text_document"), folder.file("none"));
  if (!mpi) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  EXPECT_EQ(mpi->status, static_cast<int>(ExitCode::kData)) << mpi->output;
  EXPECT_THAT(mpi->output, HasSubstr("[rank 2] " + folder.file("none.idx") + ": no such file"));
}

/// The indented lines.
Words commands_in(const std::string& text) {
  Words commands;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("  ")) commands.push_back(line.substr(2));
  return commands;
}

TEST(MpiTraining, RejectsTorchrunWithEquivalentCommands) {
  const testing::ScratchDirectory folder;
  const std::string log = folder.file("it's a $(log) \\ of \"losses\"");
  std::string quoted_log = log;
  quoted_log.replace(quoted_log.find('\''), 1, "'\\''");
  const auto refused = testing::run_shell(
      std::string("RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3 ") + MEGATRON_PROGRAM +
      quoted(joined(named_layouts().training, {"--seed=7", "--log-jsonl"})) + " '" + quoted_log + "'");
  EXPECT_EQ(refused.status, 2);
  const Words commands = commands_in(refused.output);
  ASSERT_EQ(commands.size(), 2) << refused.output;
  const auto losses_of = [&](const std::string& command) {
    std::filesystem::remove(log);
    const auto outcome = testing::run_shell(command);
    EXPECT_EQ(outcome.status, 0) << command << "\n" << outcome.output;
    return numbers(log);
  };
  const auto expected = losses_of(commands[0]);
  EXPECT_EQ(expected.size(), 4);
  const std::string one_rank =
      MEGATRON_PROGRAM + quoted(joined(named_layouts().training, {"--seed", "7", "--log-jsonl", folder.file("one")}));
  ASSERT_EQ(testing::run_shell(one_rank).status, 0);
  EXPECT_NEAR(numbers(folder.file("one")).back().first, expected.back().first, 1e-4) << "the flags are kept";
  if (testing::run_shell("mpirun --version").status != 0) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  EXPECT_EQ(losses_of(commands[1]), expected);
}

TEST(MpiTraining, BenchMeasuresProcesses) {
  const testing::ScratchDirectory folder;
  for (const Words& call : {Words{"step", "--num-layers", "2", "--hidden-size", "24", "--num-attention-heads", "3",
                                  "--seq-length", "13", "--warm-up", "1", "--steps", "2", "--no-ceiling"},
                            Words{"comm", "--sizes", "100", "--repeats", "3"}}) {
    const std::string json = folder.file(call[0]);
    const auto mpi = testing::run_under_mpi(
        2, joined({MEGATRON_PROGRAM, "bench"}, joined(call, {"--json", json, "--device", "cpu"})));
    if (!mpi) GTEST_SKIP() << "Open MPI's mpirun is not installed";
    ASSERT_EQ(mpi->status, 0) << mpi->output;
    std::ifstream file(json);
    std::string line;
    ASSERT_TRUE(std::getline(file, line)) << mpi->output;
    EXPECT_EQ(nlohmann::json::parse(line).at("ranks"), 2);
  }
}

TEST(MpiTraining, BenchRejectsTorchrunWithEquivalentCommands) {
  const auto refused = testing::run_shell(std::string("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 ") +
                                          MEGATRON_PROGRAM + " bench comm --sizes 100 --repeats 3");
  EXPECT_EQ(refused.status, 2);
  const Words commands = commands_in(refused.output);
  ASSERT_EQ(commands.size(), 2) << refused.output;
  const auto threads = testing::run_shell(commands[0]);
  EXPECT_EQ(threads.status, 0) << threads.output;
  EXPECT_THAT(threads.output, AllOf(HasSubstr("2 ranks, threads of one process"), HasSubstr("exchange")));
}

TEST(MpiTraining, ASignalToMpirunSavesAndEndsAll) {
  const testing::ScratchDirectory folder;
  const Words more = {
      "--train-iters",   "1000000", "--log-jsonl",           folder.file("log"), "--save", folder.file("ckpt"),
      "--save-interval", "1000000", "--exit-signal-handler", "--exit-signal",    "SIGUSR1"};
  const std::string start = testing::source_path("tests/system/mpirun.sh 2 ") + MEGATRON_PROGRAM +
                            quoted(joined(named_layouts().training, more));
  const auto outcome = testing::run_shell("(" + start + " & job=$!; while kill -0 $job && [ ! -s " +
                                          folder.file("log") + " ]; do sleep 0.1; done; kill -USR1 $job; wait $job)");
  if (outcome.status == 77) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("successfully saved checkpoint"), HasSubstr("after receiving SIGUSR1")));
}

/// The process that is this rank of the job that works with `path`; 0 while there is none.
pid_t process_of_rank(int rank, const std::string& path) {
  const auto content = [](const std::filesystem::path& file) {
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  const std::string variable = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank) + std::string(1, '\0');
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string id = entry.path().filename();
    if (id.find_first_not_of("0123456789") == std::string::npos &&
        content(entry.path() / "cmdline").find(path) != std::string::npos &&
        content(entry.path() / "environ").find(variable) != std::string::npos)
      return std::stoi(id);
  }
  return 0;
}

using Clock = std::chrono::steady_clock;

struct SignalledRun {
  std::optional<testing::MpiOutcome> mpi;
  Clock::time_point signal;
};

/// Four ranks with a timeout of 2 s, of which rank 2 gets a signal after a few steps.
SignalledRun train_until_rank_2_gets(int signal) {
  const testing::ScratchDirectory folder;
  const std::string log = folder.file("log.jsonl");
  SignalledRun run;
  std::jthread culprit([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && numbers_so_far(log) < 3)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    run.signal = Clock::now();
    if (const pid_t process = process_of_rank(2, log); process > 0) ::kill(process, signal);
  });
  run.mpi = testing::run_under_mpi(
      4,
      joined({MEGATRON_PROGRAM}, joined(named_layouts().training, {"--train-iters", "1000000", "--log-jsonl", log,
                                                                   "--distributed-timeout-seconds-after-init", "2"})));
  culprit.request_stop();
  culprit.join();
  return run;
}

/// Time from the signal until every rank has reported its end, without the time that mpirun then takes to end all.
constexpr std::chrono::seconds kLimit{2 + 5};

TEST(MpiTraining, AKilledProcessEndsAllRanksAndTheirLogsReportIt) {
  const auto [mpi, signal] = train_until_rank_2_gets(SIGKILL);
  if (!mpi) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  EXPECT_EQ(mpi->status, 128 + SIGKILL) << mpi->output;
  for (const std::string rank : {"0", "1", "3"}) {
    EXPECT_THAT(mpi->output,
                ::testing::ContainsRegex("megatron pretrain_gpt: \\[rank " + rank +
                                         "\\] ended by SIGTERM after iteration [0-9]+: the job was cancelled, or "
                                         "the launcher ended it because another rank died.\n"));
    EXPECT_LT(mpi->arrival_of("[rank " + rank + "] ended by SIGTERM") - signal, kLimit);
  }
}

TEST(MpiTraining, AHungProcessIsReportedByAllWithinTheTimeoutAndFiveSeconds) {
  const auto [mpi, signal] = train_until_rank_2_gets(SIGSTOP);
  if (!mpi) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  EXPECT_EQ(mpi->status, static_cast<int>(ExitCode::kCommunication)) << mpi->output;
  for (const std::string rank : {"0", "1", "3"})
    EXPECT_LT(mpi->arrival_of("megatron pretrain_gpt: [rank " + rank + "] ") - signal, kLimit) << mpi->output;
  EXPECT_THAT(mpi->output, AllOf(HasSubstr("timed out after 2000 ms: rank"),
                                 HasSubstr("Rank 2 does not answer: its process hangs or is lost.")));
}

/// Text with an invalid token in a sample that only rank 1 of three reads, in the first step.
std::string data_that_only_rank_1_finds_wrong(const testing::ScratchDirectory& folder) {
  std::string text;
  for (int paragraph = 0; paragraph < 40; ++paragraph) {
    for (int i = 0; i < 60; ++i) text += "abcdefgh "[(i * i + paragraph * (i + 3)) % 9];
    text += "a\n\n";
  }
  std::ofstream(folder.file("text.txt")) << text;
  const auto made = testing::run_shell(
      std::string(MEGATRON_PROGRAM) +
      quoted({"preprocess_data", "--input", folder.file("text.txt"), "--input-format", "text", "--text-documents",
              "blank-line", "--tokenizer-type", "CharTokenizer", "--vocab-file", folder.file("chars.txt"),
              "--make-char-vocab", "--output-prefix", folder.file("data")}));
  EXPECT_EQ(made.status, 0) << made.output;
  std::fstream file(folder.file("data_text_document.bin"), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(2 * 1384);
  file << "\xff\xff";
  return folder.file("data_text_document");
}

TEST(MpiTraining, OneFailingRankIsNamedByAllAndItsExitStatusKept) {
  const testing::ScratchDirectory folder;
  const std::string data = data_that_only_rank_1_finds_wrong(folder);
  const Words training = words_of(MEGATRON_PROGRAM
                                  " pretrain_gpt --num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 16"
                                  " --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 3"
                                  " --train-iters 2 --lr 1e-3 --tokenizer-type CharTokenizer --split 8,1,1"
                                  " --eval-iters 0 --num-threads 1");
  const auto mpi = testing::run_under_mpi(3, joined(training, {"--vocab-file", folder.file("chars.txt"), "--data-path",
                                                               data, "--data-cache-path", folder.file("cache")}));
  if (!mpi) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  const std::string error =
      data + ".bin: byte 2768, position 20 of document 22 (position 20 of sequence 22): token 65535";
  EXPECT_THAT(mpi->output, AllOf(HasSubstr("megatron pretrain_gpt: [rank 1] " + error),
                                 HasSubstr("megatron pretrain_gpt: [rank 0] aborted: rank 1 failed: " + error),
                                 HasSubstr("megatron pretrain_gpt: [rank 2] aborted: rank 1 failed: " + error)));
  EXPECT_EQ(mpi->status, static_cast<int>(ExitCode::kData)) << mpi->output;
}

}  // namespace
}  // namespace megatron
