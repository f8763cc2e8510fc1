#include "megatron/training/profile/step_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "megatron/training/profile/profile_table.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

OpRecord op(std::string_view name, int64_t begin, int64_t end) {
  return {.name = name, .place = {}, .shape = {}, .host = {begin, begin + 1}, .device = {begin, end}};
}

TEST(StepTimes, ClassesAndGapsAddUpToTheSteps) {
  const std::vector<TimeSpan> steps = {{100, 200}, {250, 300}};
  const std::vector<OpRecord> ops = {op("linear", 90, 110), op("rms_norm", 110, 115), op("linear", 120, 130),
                                     op("optimizer", 190, 260), op("linear", 310, 330)};
  // Hidden by ops: 122 to 130. Beside them: 115 to 120 and 130 to 150. Twice at once: 140 to 150.
  const StepTimes times = step_times(steps, ops, {{140, 150}, {115, 118}, {116, 120}, {122, 150}});
  EXPECT_EQ(times.total_ns, 150);
  EXPECT_EQ(times.of(OpClass::kMatmul), 10 + 10);
  EXPECT_EQ(times.of(OpClass::kNorm), 5);
  EXPECT_EQ(times.of(OpClass::kOptimizer), 10 + 10);
  EXPECT_EQ(times.of(OpClass::kCommunication), 5 + 20);
  EXPECT_EQ(times.gap_ns, 150 - 20 - 5 - 20 - 25);
}

TEST(StepTimes, AStepWithoutAnythingIsAGap) {
  const StepTimes times = step_times(std::vector<TimeSpan>{{5, 12}}, {}, {});
  EXPECT_EQ(times.gap_ns, 7);
  EXPECT_EQ(times.total_ns, 7);
}

/// Names that a profile gives to the ops of a source file: those of notes, and its stem where there is none.
std::vector<std::string> op_names_of(const std::filesystem::path& source) {
  std::ifstream file(source);
  std::stringstream text;
  text << file.rdbuf();
  const std::string content = text.str();
  const std::regex call(R"re((^|[^\w.:>])launch\((?:b\.)?ctx_?, *(?:\{\.name = "(\w+)")?)re");
  std::vector<std::string> names;
  for (std::sregex_iterator it(content.begin(), content.end(), call), end; it != end; ++it)
    names.push_back((*it)[2].matched ? (*it)[2].str() : source.stem().string());
  return names;
}

TEST(OpClass, OfEveryOpThatTheSourcesLaunchIsInTheTable) {
  int num_names = 0;
  const std::filesystem::path root = testing::source_path("megatron");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const bool is_of_a_step = entry.path().parent_path().filename() != "bench";  // benchmarks run in no training step
    if (entry.path().extension() != ".cpp" || !is_of_a_step) continue;
    for (const std::string& name : op_names_of(entry.path())) {
      ++num_names;
      EXPECT_TRUE(class_of(name).has_value())
          << entry.path() << " launches " << name << ", which megatron/training/profile/op_class.cpp does not know";
    }
  }
  EXPECT_GT(num_names, 40);  // of the source as it is
}

TEST(ProfileTable, GivesTheFirstRankAndTheRangeOfAllInMillisecondsAStep) {
  const auto rank = [](int number, int64_t matmul, int64_t gaps) {
    RankTrace trace;
    trace.rank = number;
    trace.totals_ns = {{"matrix products", matmul}, {"host gaps", gaps}};
    return trace;
  };
  const std::vector<RankTrace> ranks = {rank(2, 6'000'000, 2'000'000), rank(3, 3'000'000, 9'000'000)};
  EXPECT_EQ(profile_table(ranks, 2),
            "time of a step, ms                      rank 2       %       least   most of 2\n"
            "matrix products                          3.000    75.0       1.500       3.000\n"
            "host gaps                                1.000    25.0       1.000       4.500\n"
            "step                                     4.000   100.0       4.000       6.000");
}

}  // namespace
}  // namespace megatron
