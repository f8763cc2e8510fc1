// The program as a separate process: killed, resumed, stopped by signals.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <thread>

#include "tests/testing/program.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::joined;
using ::testing::Not;
using testing::Program;
using testing::ScratchDirectory;
using testing::Words;
using testing::words_of;

struct Ended {
  std::string out;
  int status = 0;  // of waitpid
};

/// Runs `megatron pretrain_gpt`. Once the output has `cue`, inspects the process and sends the signal, if any.
Ended pretrain(
    const Words& words, const std::string& cue = "", int signal = 0,
    const std::function<void(pid_t)>& look_at = [](pid_t) {}) {
  const Words model = words_of(MEGATRON_PROGRAM
                               " pretrain_gpt --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16"
                               " --max-position-embeddings 16 --micro-batch-size 2 --train-iters 100000 --lr 1e-2"
                               " --mock-data --tokenizer-type NullTokenizer --vocab-size 50 --num-threads 1"
                               " --log-interval 1 --log-params-norm");
  Program training(joined(model, words));
  if (signal != 0 && training.read_until(cue)) {
    look_at(training.process());
    ::kill(training.process(), signal);
  }
  const int status = training.wait_status();
  return {.out = training.output(), .status = status};
}

/// The line of each iteration without times; whole lines only.
std::map<int64_t, std::string> steps_of(const std::string& out) {
  const std::regex line(R"(iteration +([0-9]+)/.*(learning rate:.*nan iterations: +[0-9]+ \|\n))");
  std::map<int64_t, std::string> steps;
  for (std::sregex_iterator match(out.begin(), out.end(), line), end; match != end; ++match)
    steps[std::stoll(match->str(1))] = match->str(2);
  return steps;
}

TEST(Process, ResumesAfterAKillWithTheLinesOfAWholeRun) {
  for (const Words& precision : {Words{}, Words{"--bf16"}}) {
    SCOPED_TRACE(::testing::PrintToString(precision));
    const auto run = [&](const Words& words, const std::string& cue = "", int signal = 0) {
      return pretrain(joined(words, precision), cue, signal);
    };
    const ScratchDirectory scratch;
    const Words saving = {"--save", scratch.path(), "--load", scratch.path(), "--save-interval", "10"};
    const Words to_the_end = joined(saving, {"--exit-interval", "100"});

    const auto whole = steps_of(run({"--exit-interval", "100"}).out);
    ASSERT_EQ(whole.size(), 100);
    const Ended killed = run(saving, "iteration       17/", SIGKILL);
    ASSERT_TRUE(WIFSIGNALED(killed.status) && WTERMSIG(killed.status) == SIGKILL);
    const Ended resumed = run(to_the_end);
    EXPECT_EQ(resumed.status, 0);

    const auto second = steps_of(resumed.out);
    ASSERT_FALSE(second.empty());
    EXPECT_EQ((second.begin()->first - 1) % 10, 0) << "goes on behind a checkpoint";
    EXPECT_GT(second.begin()->first, 10);
    ASSERT_LT(second.begin()->first, 100);
    EXPECT_EQ(second.rbegin()->first, 100);
    for (const auto& [iteration, line] : second) EXPECT_EQ(line, whole.at(iteration)) << iteration;
    for (const auto& [iteration, line] : steps_of(killed.out)) EXPECT_EQ(line, whole.at(iteration)) << iteration;
  }
}

/// Iterations that the output reports as saved.
std::vector<int64_t> saved_in(const std::string& out) {
  const std::regex line(R"(successfully saved checkpoint from iteration +([0-9]+) to )");
  std::vector<int64_t> saved;
  for (std::sregex_iterator match(out.begin(), out.end(), line), end; match != end; ++match)
    saved.push_back(std::stoll(match->str(1)));
  return saved;
}

// MEGATRON_NUM_KILLS in the environment sets how many.
TEST(Process, AKillWithinAnAsynchronousSaveLeavesTheNewestCompleteCheckpoint) {
  constexpr int64_t kNumSteps = 60;
  const char* given = std::getenv("MEGATRON_NUM_KILLS");
  const int num_kills = given ? std::stoi(given) : 10;
  const Words model = words_of("--hidden-size 64 --ffn-hidden-size 256 --bf16 --exit-interval 60");
  const auto whole = steps_of(pretrain(model).out);
  ASSERT_EQ(whole.size(), kNumSteps);
  std::mt19937 random(7);
  const auto draw = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); };
  int num_interrupted = 0;
  auto folder = std::make_unique<ScratchDirectory>();
  for (int64_t kill = 0, stored = 0; kill < num_kills; ++kill) {
    if (stored > kNumSteps - 10) {
      folder = std::make_unique<ScratchDirectory>();
      stored = 0;
    }
    const Words saving = {"--save",       folder->path(),           "--load", folder->path(), "--save-interval", "1",
                          "--async-save", "--save-retain-interval", "20"};
    const std::string number = std::to_string(std::min(stored + 1 + draw(4), kNumSteps));
    const std::string cue = "iteration " + std::string(8 - number.size(), ' ') + number + "/";
    const Ended killed = pretrain(joined(model, saving), cue, SIGKILL,
                                  [&](pid_t) { std::this_thread::sleep_for(std::chrono::microseconds(draw(20000))); });
    for (const auto& [iteration, line] : steps_of(killed.out)) {
      EXPECT_GT(iteration, stored) << killed.out;
      EXPECT_EQ(line, whole.at(iteration)) << "iteration " << iteration << " of kill " << kill;
    }
    ASSERT_FALSE(steps_of(killed.out).empty()) << killed.out;
    const int64_t begin = steps_of(killed.out).begin()->first - 1;
    EXPECT_GE(begin, stored) << "kill " << kill << " continues behind every checkpoint that was reported";
    stored = begin;
    for (const int64_t iteration : saved_in(killed.out)) stored = std::max(stored, iteration);
    for (const auto& entry : std::filesystem::directory_iterator(folder->path()))
      num_interrupted += entry.path().extension() == ".saving";
  }
  EXPECT_GT(num_interrupted, num_kills / 10) << "kills were within saves";
}

TEST(Process, PrintsItsVersion) {
  Program program({MEGATRON_PROGRAM, "--version"});
  EXPECT_EQ(program.wait_status(), 0);
  EXPECT_TRUE(std::regex_match(program.output(), std::regex(R"(megatron [0-9]+\.[0-9]+\.[0-9]+ \([0-9a-z.-]+\)\n)")))
      << program.output();
}

TEST(Process, SavesAndEndsOnItsExitSignal) {
  const ScratchDirectory scratch;
  const Ended ended = pretrain({"--save", scratch.path(), "--save-interval", "100000", "--exit-signal-handler"},
                               "iteration        3/", SIGTERM);
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, HasSubstr("[exiting program after receiving SIGTERM.] datetime: "));
  EXPECT_TRUE(std::filesystem::exists(scratch.path() + "/latest_checkpointed_iteration.txt"));
}

/// For each thread of a process, whether a set of signals in its status has this one: SigBlk are blocked, SigCgt have a
/// handler.
std::vector<bool> threads_with(const std::string& set, int signal, pid_t process) {
  std::vector<bool> result;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with(set))
        result.push_back(std::stoull(line.substr(set.size() + 1), nullptr, 16) >> (signal - 1) & 1);
  }
  return result;
}

// The shuffled order of this many samples takes seconds.
TEST(Process, EndsAtOnceOnItsExitSignalDuringSetup) {
  Program training(words_of(MEGATRON_PROGRAM
                            " pretrain_gpt --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16"
                            " --max-position-embeddings 16 --micro-batch-size 2 --train-iters 50000000 --lr 1e-2"
                            " --mock-data --device cpu --exit-signal-handler --exit-signal SIGUSR1"
                            " --tokenizer-type NullTokenizer --vocab-size 50"));
  const auto hears_signals = [&] {
    return std::ranges::count(threads_with("SigBlk", SIGUSR1, training.process()), true);
  };
  for (int i = 0; i < 10000 && !hears_signals(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(training.process(), SIGUSR1);
  const int status = training.wait_status();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1) << status;
  EXPECT_THAT(training.output(), HasSubstr("ended by SIGUSR1 before the first iteration"));
}

TEST(Process, EndsOnItsExitSignalDuringAnEvaluation) {
  const Words endless = {"--eval-iters", "100000", "--exit-signal-handler"};
  for (const std::string ranks : {"1", "2"}) {
    SCOPED_TRACE(ranks + " ranks");
    const ScratchDirectory scratch;
    const Words words = joined(
        endless, {"--nproc-per-node", ranks, "--save", scratch.path(), "--save-interval", "100000", "--train-iters"});
    const Ended at_the_end = pretrain(joined(words, {"1"}), "after training is done", SIGTERM);
    EXPECT_EQ(at_the_end.status, 0);
    EXPECT_THAT(at_the_end.out, HasSubstr("[exiting program after receiving SIGTERM.] datetime: "));
    EXPECT_THAT(at_the_end.out, Not(HasSubstr("validation loss")));

    const Ended alone = pretrain(joined(words, {"1", "--skip-train"}), "before the start of training step", SIGTERM);
    EXPECT_EQ(alone.status, 0) << alone.out;

    std::filesystem::remove_all(scratch.path());
    const Ended between = pretrain(joined(words, {"2", "--eval-interval", "1"}), "iteration        1/", SIGTERM);
    EXPECT_EQ(between.status, 0);
    EXPECT_THAT(between.out, HasSubstr("[exiting program after receiving SIGTERM.] datetime: "));
    EXPECT_TRUE(std::filesystem::exists(scratch.path() + "/iter_0000001"));
  }
}

/// Matmuls of oneDNN move the stack pointer into the heap, where a handler's frame would overwrite other blocks.
TEST(Process, NoHandlerInterruptsThreadsThatCompute) {
  const ScratchDirectory scratch;
  std::vector<bool> blocked, handled;
  const Ended ended =
      pretrain({"--num-threads", "3", "--global-batch-size", "64", "--hidden-size", "64", "--save", scratch.path(),
                "--save-interval", "100000", "--exit-signal-handler", "--exit-signal", "SIGUSR1"},
               "iteration        3/", SIGUSR1, [&](pid_t process) {
                 blocked = threads_with("SigBlk", SIGUSR1, process);
                 handled = threads_with("SigCgt", SIGUSR1, process);
               });
  EXPECT_EQ(ended.status, 0);
  EXPECT_GE(blocked.size(), 4);
  EXPECT_THAT(handled, Each(false));
  EXPECT_EQ(std::count(blocked.begin(), blocked.end(), false), 1) << "the one that waits for the signal";
}

/// A test may limit addresses; limits of cgroups are tested by their files in tests/core.
TEST(Process, EndsWithTheMemoryTableBelowALimitOfTheSystem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than a limit leaves";
#endif
  for (const std::string ranks : {"1", "2"}) {
    const Words words = words_of(
        "pretrain_gpt --num-layers 4 --hidden-size 1024 --num-attention-heads 2 --seq-length 16"
        " --max-position-embeddings 16 --micro-batch-size 1 --train-iters 1 --lr 1e-2 --mock-data"
        " --tokenizer-type NullTokenizer --vocab-size 50 --num-threads 1 --nproc-per-node");
    Program training(joined(words_of("/bin/sh -c"), joined({R"(ulimit -v 3000000; exec "$0" "$@")", MEGATRON_PROGRAM},
                                                           joined(words, {ranks}))));
    const int status = training.wait_status();
    EXPECT_EQ(WEXITSTATUS(status), 5) << training.output();
    for (const std::string text :
         {"memory (MiB)", "more --tensor-model-parallel-size or --pipeline-model-parallel-size",
          "In all a rank needs about"})
      EXPECT_THAT(training.output(), HasSubstr(text));
  }
}

/// Trains on a text of `num_tokens` characters, shortens the file of tokens to `bytes` after three steps, and expects
/// the run to end with `status` and `text` behind the name of the file.
void expect_end_when_shortened(size_t num_tokens, uintmax_t bytes, int status, const std::string& text) {
  const ScratchDirectory scratch;
  std::ofstream(scratch.file("text.txt")) << std::string(num_tokens, 'a');
  Program preprocessing(words_of(MEGATRON_PROGRAM
                                 " preprocess_data --input-format text --tokenizer-type ByteLevelTokenizer --input " +
                                 scratch.file("text.txt") + " --output-prefix " + scratch.file("data")));
  ASSERT_EQ(preprocessing.wait_status(), 0) << preprocessing.output();
  const std::string prefix = scratch.file("data_text_document");
  Program training(words_of(MEGATRON_PROGRAM
                            " pretrain_gpt --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16"
                            " --max-position-embeddings 16 --micro-batch-size 2 --train-iters 30000 --lr 1e-2"
                            " --tokenizer-type ByteLevelTokenizer --num-threads 1 --log-interval 1 --split 1,0,0"
                            " --eval-iters 0 --device cpu --data-path " +
                            prefix));
  ASSERT_TRUE(training.read_until("iteration        3/")) << training.output();
  ASSERT_GT(std::filesystem::file_size(prefix + ".bin"), bytes);
  std::filesystem::resize_file(prefix + ".bin", bytes);
  const int ended = training.wait_status();
  EXPECT_TRUE(WIFEXITED(ended)) << training.output();
  EXPECT_EQ(WEXITSTATUS(ended), status);
  EXPECT_THAT(training.output(), HasSubstr(prefix + ".bin" + text));
}

TEST(Process, NamesAFileTruncatedDuringTraining) {
  expect_end_when_shortened(1 << 20, 0, 3, " was truncated while it was read, or its disk failed.");
}

TEST(Process, AFileThatLosesItsLastByteDuringTrainingEndsIt) {
  constexpr size_t kTokens = 5000;  // of 2 bytes: the file ends within a page
  expect_end_when_shortened(kTokens, 2 * kTokens - 1, 6, ": the file has become shorter since it was opened");
}

TEST(Process, NamesTheFileThatExceedsTheFileSizeLimit) {
  const ScratchDirectory scratch;
  const Words words = words_of(
      "pretrain_gpt --num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 16 --max-position-embeddings "
      "16"
      " --micro-batch-size 1 --train-iters 1 --lr 1e-2 --mock-data --tokenizer-type NullTokenizer --vocab-size 50"
      " --eval-iters 0 --num-threads 1 --device cpu --save-interval 1 --save " +
      scratch.path());
  Program training(
      joined(words_of("/bin/sh -c"), joined({R"(ulimit -f 16; exec "$0" "$@")", MEGATRON_PROGRAM}, words)));
  const int status = training.wait_status();
  EXPECT_TRUE(WIFEXITED(status)) << training.output();
  EXPECT_EQ(WEXITSTATUS(status), 6);
  EXPECT_THAT(training.output(), HasSubstr(scratch.path()));
  EXPECT_THAT(training.output(), HasSubstr("File too large"));
}

TEST(Process, AnUnhandledSignalEndsIt) {
  const Ended ended = pretrain({}, "iteration        3/", SIGTERM);
  EXPECT_TRUE(WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGTERM);
}

TEST(Process, CtrlCReportsProgressAndTheNewestCheckpoint) {
  const ScratchDirectory saves;
  const Ended ended = pretrain({"--save", saves.path(), "--save-interval", "2"}, "iteration        5/", SIGINT);
  EXPECT_TRUE(WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGINT);
  EXPECT_TRUE(std::regex_search(ended.out, std::regex(R"(ended by Ctrl-C \(SIGINT\) after iteration [0-9]+\.)")))
      << ended.out;
  EXPECT_TRUE(std::regex_search(ended.out, std::regex(R"(newest checkpoint in [^ ]+ is of iteration [0-9]+; '--load)")))
      << ended.out;
  const Ended unsaved = pretrain({}, "iteration        3/", SIGINT);
  EXPECT_THAT(unsaved.out, HasSubstr("Nothing was saved: '--save FOLDER --save-interval N' keeps checkpoints"));
}

TEST(Process, SuggestsTheCommandForAScriptOfMegatron) {
  const auto output = [](const std::string& command) {
    Program program({MEGATRON_PROGRAM, command});
    program.wait_status();
    return program.output();
  };
  EXPECT_THAT(output("pretrain_gpt.py"), HasSubstr("did you mean 'megatron pretrain_gpt'?"));
  EXPECT_THAT(output("pretrain-gpt"), HasSubstr("did you mean 'megatron pretrain_gpt'?"));
  EXPECT_THAT(output("tools/preprocess_data.py"), HasSubstr("did you mean 'megatron preprocess_data'?"));
  EXPECT_THAT(output("train"), HasSubstr("did you mean 'megatron pretrain_gpt'?"));
  EXPECT_THAT(output("xyzzy"), Not(HasSubstr("did you mean")));
}

/// The output of `megatron pretrain_gpt --help` on a terminal. @param pager  value of $PAGER
std::string help_on_a_terminal(const char* pager) {
  int terminal = 0;
  const pid_t process = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (process == 0) {
    ::setenv("PAGER", pager, 1);
    ::execl(MEGATRON_PROGRAM, MEGATRON_PROGRAM, "pretrain_gpt", "--help", nullptr);
    ::_exit(127);
  }
  std::string shown;
  std::array<char, 4096> bytes{};
  for (ssize_t size = 0; (size = ::read(terminal, bytes.data(), bytes.size())) > 0;)
    shown.append(bytes.data(), static_cast<size_t>(size));
  ::close(terminal);
  int status = 0;
  ::waitpid(process, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return shown;
}

TEST(Process, HelpGoesThroughAPagerOnATerminalOnly) {
  EXPECT_THAT(help_on_a_terminal("tr a-z A-Z"), HasSubstr("USAGE: MEGATRON PRETRAIN_GPT"));
  EXPECT_THAT(help_on_a_terminal("no-such-pager"), HasSubstr("usage: megatron pretrain_gpt"));
  EXPECT_THAT(help_on_a_terminal(""), HasSubstr("usage: megatron pretrain_gpt"));
  ::setenv("PAGER", "tr a-z A-Z", 1);
  Program piped({MEGATRON_PROGRAM, "pretrain_gpt", "--help"});
  piped.wait_status();
  ::unsetenv("PAGER");
  EXPECT_THAT(piped.output(), HasSubstr("usage: megatron pretrain_gpt"));
}

}  // namespace
}  // namespace megatron
