#include "commands/bench/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "megatron/bench/bench_device.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

/// Records the output.
class PrintedLines final : public Progress {
 public:
  void begin(const ProgressTask&) override {}
  void update(std::int64_t, std::string_view) override {}
  void end() override {}
  void message(std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

struct Report {
  std::vector<std::string> lines;
  std::vector<Json> rows;
};

KernelCase kernel_of(const std::string& name, const std::string& peer_note) {
  KernelCase kernel{.name = name, .calls = 3, .bytes = 2e6};
  kernel.peer_note = peer_note;
  return kernel;
}

/// The times of five kernels of 2 us.
Report report_beside(const PeerTimings& peers) {
  const testing::ScratchDirectory directory;
  const BenchConfig config{.kind = BenchKind::kOps, .json = directory.path() + "/results.jsonl", .name = "kernels"};
  KernelCeiling ceiling{.copy_bandwidth = 4e12};
  for (const auto& [name, note] : std::initializer_list<std::pair<const char*, const char*>>{
           {"norm", ""}, {"GELU", "without the bias"}, {"rope", ""}, {"Adam", ""}, {"loss", ""}})
    ceiling.kernels.push_back({kernel_of(name, note), {.best = 2e-6, .median = 2e-6}});
  PrintedLines printed;
  PosixFileSystem files;
  BenchReport report(config, pretrain_config_of(parse_bench({"ops"}, 1), 1), {.name = "GPU"}, 1, files, printed);
  report_kernels(ceiling, peers, {}, report);
  Report result{.lines = printed.lines, .rows = {}};
  std::ifstream file(*config.json);
  for (std::string line; std::getline(file, line);) result.rows.push_back(Json::parse(line));
  return result;
}

PeerTiming timing(double seconds, double difference) {
  return {.timing = {.best = seconds, .median = seconds}, .difference = difference, .result = "y", .error = ""};
}

TEST(BenchReport, PrintsTransformerEnginesTimesInColumns) {
  const Report report = report_beside({{"norm", timing(3e-6, 0.5)}, {"GELU", timing(1.5e-6, 0)}});
  ASSERT_EQ(report.lines.size(), 8u);
  EXPECT_THAT(report.lines[1], EndsWith("         TE  TE/ours"));
  EXPECT_THAT(report.lines[2], EndsWith("    3.00 us     1.50"));
  EXPECT_THAT(report.lines[3], EndsWith("    1.50 us     0.75"));
  EXPECT_THAT(report.lines[4], EndsWith("    6.00 us"));
  EXPECT_EQ(report.lines[7], "TE, GELU: without the bias");
  EXPECT_EQ(report.rows[0].at("te_seconds"), 3e-6);
  EXPECT_DOUBLE_EQ(report.rows[0].at("te_seconds_over_ours").get<double>(), 1.5);
  EXPECT_EQ(report.rows[0].at("te_difference_over_rounding"), 0.5);
  EXPECT_EQ(report.rows[1].at("te_note"), "without the bias");
  EXPECT_FALSE(report.rows[2].contains("te_seconds"));
}

TEST(BenchReport, GivesNoTimeForOtherResults) {
  PeerTiming failed;
  failed.error = "not on this GPU";
  const Report report = report_beside({{"norm", timing(3e-6, 1.25)}, {"rope", failed}});
  EXPECT_THAT(report.lines[2], EndsWith("    differs"));
  EXPECT_THAT(report.lines[4], EndsWith("      fails"));
  EXPECT_EQ(report.lines[7], "TE, norm: its y differs from ours by 1.25 times the rounding bound, after 3.00 us");
  EXPECT_EQ(report.lines[8], "TE, rope: not on this GPU");
  EXPECT_TRUE(report.rows[0].at("te_seconds").is_null());
  EXPECT_TRUE(report.rows[0].at("te_seconds_over_ours").is_null());
  EXPECT_TRUE(report.rows[2].at("te_seconds").is_null());
  EXPECT_EQ(report.rows[2].at("te_note"), "not on this GPU");
}

TEST(BenchReport, HasNoSuchColumnsWithoutTransformerEngine) {
  const Report report = report_beside({});
  ASSERT_EQ(report.lines.size(), 7u);
  for (const std::string& line : report.lines) EXPECT_THAT(line, Not(HasSubstr("TE")));
  for (const Json& row : report.rows) EXPECT_FALSE(row.contains("te_seconds"));
}

TEST(BenchReport, TextsHaveThreeDigits) {
  EXPECT_EQ(time_text(1.234e-8), "12.3 ns");
  EXPECT_EQ(time_text(9.996e-4), "1.00 ms");
  EXPECT_EQ(time_text(0.25), "250 ms");
  EXPECT_EQ(time_text(1234), "1234 s");
  EXPECT_EQ(rate_text(6.7e14, "FLOP/s"), "670 TFLOP/s");
  EXPECT_EQ(rate_text(0, "B/s"), "0.00 B/s");
}

}  // namespace
}  // namespace megatron
