// The list of what is run in full, and the record of what has been run.
#include "tests/parallel/full_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(FullMatrix, HasAllCombinationsOnce) {
  std::map<std::string, size_t> groups;
  std::set<std::pair<std::string, std::string>> names;
  for (const MatrixCase& one : full_matrix()) {
    ++groups[one.group];
    EXPECT_TRUE(names.emplace(one.group, one.name).second) << one.name;
  }
  EXPECT_THAT(groups, ElementsAre(Pair("43 layers", 48), Pair("50257 tokens", 88),
                                  Pair("checkpoints between two layouts", 256), Pair("every combination", 2912),
                                  Pair("key-value heads 1, 2, 5, 6", 240), Pair("overlapped communication", 304)));
}

RecordedCase of(const std::string& name) { return {.group = "g", .name = name, .outcome = {.failure = "a\nb\tc"}}; }

std::vector<std::string> names_in(const RunRecord& record) {
  std::vector<std::string> names;
  for (const RecordedCase& one : record.cases()) names.push_back(one.name);
  return names;
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
