// megatron preprocess_data as a separate process: killed, continued, stopped by signals.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "tests/testing/program.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::joined;
using ::testing::Not;
using testing::Program;
using testing::ScratchDirectory;
using ::testing::StartsWith;
using testing::Words;
using testing::words_of;

/// Names in a folder.
Words names_in(const std::string& folder) {
  Words names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

TEST(PreprocessProcess, PreprocessingLeavesNoFilesOnASignalAndRemovesThoseOfAKilledRun) {
  const ScratchDirectory scratch;
  std::ofstream input(scratch.file("in.jsonl"));
  for (int i = 0; i < 20'000; ++i) input << "{\"text\": \"1 2\"}\n";
  input.close();
  const auto run = [&](int signal, const std::string& passes) {
    Program program(joined({MEGATRON_PROGRAM, "preprocess_data", "--input", scratch.file("in.jsonl"), "--output-prefix",
                            scratch.file("out"), "--partitions", passes},
                           words_of("--tokenizer-type NullTokenizer --vocab-size 9 --workers 2 --log-interval 1")));
    if (signal != 0 && program.read_until("Processed 1 documents")) ::kill(program.process(), signal);
    return program.wait_status();
  };
  for (const int signal : {SIGINT, SIGTERM}) {
    const int status = run(signal, "20000");
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_THAT(names_in(scratch.path()), ElementsAre("in.jsonl"));
  }
  run(SIGKILL, "20000");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("in.jsonl", StartsWith("out_text_document.bin.tmp.")));
  EXPECT_EQ(run(0, "1"), 0);
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("in.jsonl", "out_text_document.bin", "out_text_document.idx"));
}

/// Returns the text that the program prints on a terminal.
std::string output_on_terminal(const std::string& command) {
  Program program({"/usr/bin/script", "--quiet", "--return", "--command", MEGATRON_PROGRAM " " + command, "/dev/null"});
  EXPECT_EQ(program.wait_status(), 0) << program.output();
  return program.output();
}

TEST(PreprocessProcess, ABarIsRedrawnOnATerminalOnly) {
  if (!std::filesystem::exists("/usr/bin/script")) GTEST_SKIP() << "needs util-linux's script";
  const ScratchDirectory scratch;
  std::ofstream(scratch.file("in.jsonl")) << "{\"text\": \"1 2\"}\n{\"text\": \"3\"}\n";
  const std::string preprocess = "preprocess_data --input " + scratch.file("in.jsonl") + " --output-prefix " +
                                 scratch.file("out") +
                                 " --tokenizer-type NullTokenizer --vocab-size 9 --log-interval 1";
  constexpr std::string_view kRedraw = "\r\x1b[K";
  const std::string shown = output_on_terminal(preprocess);
  EXPECT_THAT(shown, HasSubstr(std::string(kRedraw) + "preprocessing "));
  EXPECT_THAT(shown, Not(HasSubstr("Processed")));
  const std::string check = "data check " + scratch.file("out_text_document");
  EXPECT_THAT(output_on_terminal(check), HasSubstr(std::string(kRedraw) + "checking "));

  for (const std::string& command : {preprocess, check}) {
    Program piped({"/bin/sh", "-c", MEGATRON_PROGRAM " " + command});
    EXPECT_EQ(piped.wait_status(), 0) << piped.output();
    EXPECT_THAT(piped.output(), Not(HasSubstr("\r")));
    EXPECT_THAT(piped.output(), HasSubstr(command == check ? "3/3 tokens (100%)" : "Processed 2 documents ("));
  }
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(PreprocessProcess, PreprocessingThatIsKilledAgainAndAgainGivesTheFilesOfAnUninterruptedRun) {
  const ScratchDirectory scratch;
  for (const std::string name : {"a.jsonl", "b.jsonl"}) {
    std::ofstream input(scratch.file(name));
    for (int i = 0; i < 60'000; ++i)
      input << R"({"text": [")" << i % 997 << ' ' << i << R"(", ")" << i << R"("], "title": ")" << i % 91 << "\"}\n";
  }
  ASSERT_EQ(std::system(("gzip -k " + scratch.file("b.jsonl")).c_str()), 0);
  const auto command = [&](const std::string& prefix, const std::string& flags) {
    return joined({MEGATRON_PROGRAM, "preprocess_data", "--input", scratch.file("a.jsonl"), scratch.file("b.jsonl.gz"),
                   "--output-prefix", scratch.file(prefix)},
                  words_of("--tokenizer-type NullTokenizer --vocab-size 100000 --append-eod --json-keys text title"
                           " --partitions 2 --log-interval 100000 " +
                           flags));
  };
  const auto start = std::chrono::steady_clock::now();
  Program whole(command("whole", "--workers 2"));
  ASSERT_EQ(whole.wait_status(), 0) << whole.output();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count();

  std::minstd_rand random(18);
  int num_killed = 0, num_continued = 0;
  for (bool complete = false; !complete;) {
    ASSERT_LT(num_killed, 300) << "no progress";
    Program program(command(
        "killed", num_killed % 2 == 0 ? "--workers 1 --resume-interval 0" : "--workers 2 --resume-interval 0.001"));
    // A fast machine is killed sooner, so that it is killed several times. Later kills let a slow one end at last.
    const auto longest = static_cast<int64_t>(milliseconds * (1 + num_killed / 50) / 8 + 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(longest / 4 + static_cast<int64_t>(random()) % longest));
    ::kill(program.process(), num_killed % 3 == 2 ? SIGTERM : SIGKILL);
    const int status = program.wait_status();
    complete = WIFEXITED(status);
    num_killed += complete ? 0 : 1;
    num_continued += program.output().find("Continues behind document") != std::string::npos ? 1 : 0;
    EXPECT_TRUE(!complete || WEXITSTATUS(status) == 0) << program.output();
    for (const std::string& name : names_in(scratch.path())) {
      // A run that is killed while it ends has given some files their names: they are whole.
      if (!name.starts_with("killed_") || name.find(".tmp.") != std::string::npos) continue;
      EXPECT_EQ(bytes_of(scratch.file(name)), bytes_of(scratch.file("whole" + name.substr(6)))) << name;
    }
  }
  EXPECT_GT(num_continued, 2);
  for (const std::string name :
       {"_text_document.bin", "_text_document.idx", "_title_document.bin", "_title_document.idx"})
    EXPECT_EQ(bytes_of(scratch.file("killed" + name)), bytes_of(scratch.file("whole" + name))) << name;
  EXPECT_THAT(names_in(scratch.path()), Not(::testing::Contains(HasSubstr(".tmp."))));
  EXPECT_FALSE(std::filesystem::exists(scratch.file("killed.resume.json")));
}

TEST(PreprocessProcess, PreprocessingStartsAnewIfTheInputOrTheFlagsHaveChanged) {
  const ScratchDirectory scratch;
  const auto write_input = [&](int step) {
    std::ofstream input(scratch.file("in.jsonl"));
    for (int i = 0; i < 200'000; ++i) input << "{\"text\": \"" << i * step % 1000 << "\"}\n";
  };
  // The program waits at the end of the pipe for this test to read, so that it is not far ahead when it is killed.
  // It records how far it is after each MB of input, which is about 66,000 documents here.
  const auto run = [&](const std::string& flags, const std::string& last_line) {
    Program program(joined({MEGATRON_PROGRAM, "preprocess_data", "--input", scratch.file("in.jsonl"), "--output-prefix",
                            scratch.file("out")},
                           words_of("--tokenizer-type NullTokenizer --vocab-size 1000 --workers 1 --resume-interval 0"
                                    " --log-interval 10 " +
                                    flags)));
    if (!last_line.empty() && program.read_until(last_line)) ::kill(program.process(), SIGKILL);
    const int status = program.wait_status();
    const std::string output = program.output();
    EXPECT_EQ(WIFSIGNALED(status), !last_line.empty()) << output.substr(0, 1000) << "\n...";
    return output;
  };
  write_input(1);
  run("", "Processed 90000 documents");
  EXPECT_TRUE(std::filesystem::exists(scratch.file("out.resume.json")));
  EXPECT_THAT(run("--append-eod", "Processed 90000 documents"), HasSubstr("this run starts anew"));
  EXPECT_THAT(run("--append-eod --no-resume", "Processed 90000 documents"), Not(HasSubstr("Continues")));
  EXPECT_THAT(run("--append-eod --workers 2", "Processed 150000 documents"), HasSubstr("Continues behind document"));
  write_input(7);
  EXPECT_THAT(run("--append-eod", ""), HasSubstr("this run starts anew"));
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("in.jsonl", "out_text_document.bin", "out_text_document.idx"));
}

TEST(PreprocessProcess, PreprocessingEndsOnASignalWhileItWaitsForAPipe) {
  const ScratchDirectory scratch;
  const std::string pipe = scratch.file("in");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  Program program(joined({MEGATRON_PROGRAM, "preprocess_data", "--input", pipe, "--output-prefix", scratch.file("out")},
                         words_of("--tokenizer-type NullTokenizer --vocab-size 9")));
  int writer = -1;
  for (int i = 0; i < 2000 && (writer = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK)) < 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_GE(writer, 0);
  ::kill(program.process(), SIGTERM);
  const int status = program.wait_status();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

}  // namespace
}  // namespace megatron
