// The list of what is run in full, who runs it, and the record of what has been run.
#include "tests/parallel/full_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "tests/parallel/matrix_summary.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(FullMatrix, HasAllCombinationsOnce) {
  std::map<std::string, size_t> groups;
  std::set<std::pair<std::string, std::string>> names;
  for (const MatrixCase& one : full_matrix()) {
    ++groups[one.group];
    EXPECT_TRUE(names.emplace(one.group, one.name).second) << one.name;
  }
  EXPECT_THAT(groups, ElementsAre(Pair("43 layers", 288), Pair("50257 tokens", 280),
                                  Pair("checkpoints between two layouts", 256), Pair("every combination", 2912),
                                  Pair("key-value heads 1, 2, 5, 6", 240), Pair("overlapped communication", 304),
                                  Pair("overlapped tensor parallelism", 232)));
}

RecordedCase of(const std::string& name) { return {.group = "g", .name = name, .outcome = {.failure = "a\nb\tc"}}; }

std::vector<std::string> names_in(const RunRecord& record) {
  std::vector<std::string> names;
  for (const RecordedCase& one : record.cases()) names.push_back(one.name);
  return names;
}

using CaseFunction = std::function<CaseOutcome()>;

/// Cases that end in all the ways in which a case can end, between some that pass.
std::vector<MatrixCase> all_ends() {
  const CaseFunction pass = [] { return CaseOutcome{.loss_error = 1e-15, .grad_norm_error = 2e-15}; };
  const CaseFunction hang = [] {
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
    return CaseOutcome{};
  };
  const CaseFunction stop = [] {
    ::raise(SIGKILL);
    return CaseOutcome{};
  };
  const CaseFunction end = [] {
    std::_Exit(3);
    return CaseOutcome{};
  };
  const CaseFunction fail = []() -> CaseOutcome { throw std::runtime_error("refused"); };
  const CaseFunction compare_losses = [] { return CaseOutcome{.loss_error = 3e-16}; };
  return {{"g", "first", pass}, {"g", "hangs", hang}, {"g", "second", pass}, {"g", "stops", stop},
          {"h", "fails", fail}, {"h", "ends", end},   {"h", "hangs", hang},  {"h", "last", compare_losses}};
}

std::map<std::string, std::string> failures_in(const RunRecord& record) {
  std::map<std::string, std::string> failures;
  for (const RecordedCase& one : record.cases())
    EXPECT_TRUE(failures.emplace(one.group + " " + one.name, one.outcome.failure).second) << "twice: " << one.name;
  return failures;
}

TEST(MatrixRunner, NamesCasesThatHangOrEndTheirProcessAndGoesOn) {
  const ScratchDirectory directory;
  const std::vector<MatrixCase> cases = all_ends();
  for (const size_t jobs : {1, 3}) {
    const RunRecord record(directory.file(std::to_string(jobs)), "one");
    const RunnerOptions options{
        .jobs = jobs, .case_limit = std::chrono::seconds(2), .poll = std::chrono::milliseconds(20)};
    size_t most_told = 0;
    run_cases(cases, record, options, [&](const auto& finished) { most_told = finished.size(); });
    EXPECT_EQ(most_told, cases.size());
    EXPECT_THAT(failures_in(record),
                UnorderedElementsAre(Pair("g first", ""), Pair("g hangs", "has not ended after 2 s"),
                                     Pair("g second", ""), Pair("g stops", "its process ended with signal 9"),
                                     Pair("h fails", "refused"), Pair("h ends", "its process ended with status 3"),
                                     Pair("h hangs", "has not ended after 2 s"), Pair("h last", "")));
    EXPECT_FALSE(summarize(cases, record.cases()).has_passed);
  }
}

TEST(MatrixRunner, RunsOnlyWhatTheRecordHasNot) {
  const ScratchDirectory directory;
  const RunRecord record(directory.file("record"), "one");
  const std::vector<MatrixCase> cases = all_ends();
  for (const MatrixCase& one : cases)
    if (one.name != "last") record.append({.group = one.group, .name = one.name});
  run_cases(cases, record, {.poll = std::chrono::milliseconds(20)}, [](const auto&) {});
  EXPECT_EQ(failures_in(record).size(), cases.size());
  EXPECT_EQ(record.cases().back().name, "last");
  EXPECT_EQ(record.cases().back().outcome.loss_error, 3e-16);
  EXPECT_EQ(record.cases().back().outcome.grad_norm_error, std::nullopt);
  EXPECT_TRUE(summarize(cases, record.cases()).has_passed);
}

TEST(MatrixSummary, NamesTheWorstCaseOfEachGroupAndWhatFailed) {
  const std::vector<MatrixCase> cases = {{"a", "one", {}}, {"a", "two", {}}, {"b", "one", {}}, {"b", "missing", {}}};
  const MatrixSummary summary =
      summarize(cases, {{.group = "a", .name = "one", .outcome = {.loss_error = 1e-15, .grad_norm_error = 4e-15}},
                        {.group = "a", .name = "two", .outcome = {.loss_error = 2e-15, .grad_norm_error = 3e-15}},
                        {.group = "b", .name = "one", .outcome = {.loss_error = 5e-16, .failure = "another state"}},
                        {.group = "b", .name = "of another list", .outcome = {.loss_error = 1}}});
  EXPECT_FALSE(summary.has_passed);
  for (const std::string line :
       {"| a | 2 | 2 | 0 | 2.0e-15 | 4.0e-15 | 0 |", "| b | 1 | 2 | 1 | 5.0e-16 | - | 0 |",
        "3 of 4 cases were run, 1 failed.", "- a, loss 2.0e-15: `two`", "- a, gradient norm 4.0e-15: `one`",
        "- b, loss 5.0e-16: `one`", "FAILED: b: `one`: another state"})
    EXPECT_THAT(summary.markdown, HasSubstr(line)) << line;
  EXPECT_THAT(summary.markdown, Not(HasSubstr("b, gradient norm")));
}

TEST(RunRecord, GoesOnWithTheSameCommitAndBeginsAnewWithAnother) {
  const ScratchDirectory directory;
  const std::string path = directory.file("record");
  RunRecord(path, "one").append(of("a"));
  RunRecord(path, "one").append(of("b"));
  const RunRecord record(path, "one");
  EXPECT_THAT(names_in(record), ElementsAre("a", "b"));
  EXPECT_EQ(record.cases()[0].outcome.failure, "a b c");
  EXPECT_THAT(names_in(RunRecord(path, "two")), IsEmpty());
}

TEST(RunRecord, LeavesOutALineThatWasCutOff) {
  const ScratchDirectory directory;
  const std::string path = directory.file("record");
  RunRecord(path, "one").append(of("a"));
  std::ofstream(path, std::ios::app) << "g\tb\t1";
  const RunRecord record(path, "one");
  record.append(of("c"));
  EXPECT_THAT(names_in(record), ElementsAre("a", "c"));
}

}  // namespace
}  // namespace megatron::testing
